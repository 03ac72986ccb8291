"""The models that can be used: listed, found for a first configuration, and tested.

``model_table`` is ``dial-chat models``, ``model_trials`` is ``dial-chat models test``. ``model_proposals`` finds what
can be used now: by keys in the environment, on local servers, to download. ``endpoint_trial`` tries an endpoint that a
user names, ``model_search`` has the free requests of both. ``model_names`` has the models that are known without a
request.
"""
