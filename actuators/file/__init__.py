"""Values in a file that another program reads, or from which its file is made."""

from actuators.file.actuator import File
from actuators.file.config import FileConfig

__all__ = ["File", "FileConfig"]
