"""A federation in one process: a grid that hands messages to a client app, and counts."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

START = ArrayRecord({"mean": Array(np.zeros(3))})


class Here(Grid):
    """As many clients as are asked for, each of which moves the model by one."""

    def __init__(self, clients=6, broken=(), weights=()):
        self.clients, self.broken, self.asked = clients, set(broken), []
        self.weights = dict(weights)  # of the client that is asked as the n-th, if not one
        # Whose messages these are.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.app = ClientApp()
        self.app.train()(self.train)

    def train(self, message, context):
        weight = self.weights.get(len(self.asked), 1)
        moved = message.content["arrays"]["mean"].numpy() + 1.0
        reply = {"arrays": ArrayRecord({"mean": Array(moved)}),
                 "metrics": MetricRecord({"num-examples": weight})}  # fmt: skip
        return Message(RecordDict(reply), reply_to=message)

    def get_node_ids(self):
        return list(range(1, self.clients + 1))

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.asked.append(node)
            if len(self.asked) in self.broken:
                continue
            context = Context(run_id=1, node_id=node, node_config={}, state=RecordDict(),
                              run_config={})  # fmt: skip
            replies.append(self.app(message, context))
        return replies

    def set_run(self, run):
        raise NotImplementedError

    run = create_message = get_nodes = push_messages = pull_messages = None


def inner(sampled):
    return FedAvg(fraction_train=1e-9, fraction_evaluate=0.0, min_train_nodes=sampled)
