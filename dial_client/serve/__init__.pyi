from dial_client.serve.human_input import PageUser as PageUser
from dial_client.serve.web_app import WebApp as WebApp
from dial_client.serve.web_app import create_app as create_app

__all__ = ["PageUser", "WebApp", "create_app"]
