"""The same policies on a plant that we did not write: Dynamo's frontend with mock workers, in real time."""
