"""What a lane's session is known by, and the store that hosts see it through."""
