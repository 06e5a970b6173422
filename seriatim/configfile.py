"""Reads the configuration file: the one place where configuration meets disk and environment.

It belongs to the composition root, not to the pure rules; only ``cli`` and ``gateway`` import it.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from seriatim.config import GatewayConfig, parse_config
from seriatim.errors import ConfigError
from seriatim.limits import CONFIG_FILE_BYTES_MAX

_log = logging.getLogger("seriatim.config")


def load_config(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> GatewayConfig:
    """Read one TOML file, lay the environment over it, and check everything.

    Args:
        path: the file; None for none, so that defaults and environment alone count.
        environ: the environment; None for the process's own.

    Raises:
        ConfigError: with the path as its key where the file can't be read or isn't TOML, else with the dotted key.

    """
    values = {} if path is None else _read(Path(path))
    return parse_config(values, os.environ if environ is None else environ, _warn)


def _warn(keys: tuple[str, ...]) -> None:
    _log.warning("conversations don't end by time; these settings have no effect: %s", ", ".join(keys))


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            raw = file.read(CONFIG_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(str(path), f"can't be read: {error.strerror or error}") from error
    if len(raw) > CONFIG_FILE_BYTES_MAX:
        raise ConfigError(str(path), f"is no configuration: larger than {CONFIG_FILE_BYTES_MAX} bytes")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"isn't UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), f"isn't TOML: {error}") from error
