"""Errors that a user can cause, and the sentence that explains them."""


class UserError(Exception):
  """Something the user asked for cannot be done.

  The message is one clear sentence that names the offender and what was expected.
  The command line prints it without a traceback and exits with `exit_code`.
  """

  exit_code = 2
