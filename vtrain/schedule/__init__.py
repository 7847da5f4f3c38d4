"""Pipeline schedules: layers of stages, order of work, bubbles."""
