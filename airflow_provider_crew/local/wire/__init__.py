"""HTTP: the listener, the first steps for every request, the paths, and their OpenAPI description."""
