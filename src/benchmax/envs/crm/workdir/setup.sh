# The server is part of benchmax; there is nothing to install.
