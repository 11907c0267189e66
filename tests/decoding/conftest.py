"""Property tests are judged by what they find, not by how long the first call of torch takes on a busy machine."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
