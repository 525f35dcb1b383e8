"""HTTP: endpoints, their schemas, the OpenAPI document, metrics and the server."""
