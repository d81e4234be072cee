"""Starting the processes of a program, watching them, and starting them again when one fails.

An agent runs on every machine (agent/). The agents meet (rendezvous/), give each process its rank, start them
(multiprocessing/) and watch them; when one fails, all are ended and started again, up to a number of times.
"""
