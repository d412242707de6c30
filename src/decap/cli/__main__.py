"""``python -m decap`` is ``decap``; torchrun and cron jobs start it so."""

from decap.cli import main

raise SystemExit(main())
