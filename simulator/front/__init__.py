"""The front: a gateway at work on the laws of ``routing``, and what carries its requests to engines."""
