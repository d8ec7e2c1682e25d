"""Links from tasks to where people look at crews."""
