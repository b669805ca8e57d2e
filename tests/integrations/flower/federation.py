"""A federation in one process: a grid that hands messages to a client app, and counts."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity

START = ArrayRecord({"mean": Array(np.zeros(3))})


class Here(Grid):
    """As many clients as are asked for, each of which moves the model by one."""

    def __init__(self, clients=6, broken=()):
        self.clients, self.broken, self.asked = clients, set(broken), []
        # Whose messages these are.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.app = ClientApp()
        self.app.train()(self.train)

    def train(self, message, context):
        moved = message.content["arrays"]["mean"].numpy() + 1.0
        reply = {"arrays": ArrayRecord({"mean": Array(moved)}),
                 "metrics": MetricRecord({"num-examples": 1})}  # fmt: skip
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


def strategy(accountant, sampled=4, noise=4.0, clients=6):
    inner = FedAvg(fraction_train=sampled / clients, fraction_evaluate=0.0, min_train_nodes=sampled)
    return DifferentialPrivacyServerSideFixedClipping(
        inner, noise, 1.0, sampled, accountant=accountant
    )
