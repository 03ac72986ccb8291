"""The models that can be used: listed, found for a first configuration, and tested.

``model_table`` is ``dial-chat models``, ``model_trials`` is ``dial-chat models test``. ``model_search`` finds models by
keys in the environment and on local servers, and sends free requests to endpoints. ``model_names`` has the models that
are known without a request.
"""
