"""The Python client against a broker; see ../README.md. Takes its settings from the environment."""

import acknowledge  # noqa: F401  importing registers the tests
import broadcast  # noqa: F401
import credentials  # noqa: F401
import messages  # noqa: F401
import placing  # noqa: F401
import redelivery  # noqa: F401
import schemas  # noqa: F401
import subscriptions  # noqa: F401
import topics  # noqa: F401
import web_sockets  # noqa: F401
from harness import main

if __name__ == "__main__":
    main()
