"""The server: hosts ASGI and WSGI applications (``headrace serve``)."""
