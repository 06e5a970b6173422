"""What waits in a lane: wakes, the queue that people steer, albums, edits, admission, and the model of it all."""
