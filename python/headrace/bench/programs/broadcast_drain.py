"""Takes every message from a queue and says, as JSON, how many there were and how many different numbers they had.

broadcast_drain.py AMQP_URL QUEUE
"""

from __future__ import annotations

import json
import sys

import pika


def main() -> None:
    """Run the program."""
    connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
    channel = connection.channel()
    numbers = []
    for method, _properties, body in channel.consume(sys.argv[2], auto_ack=True, inactivity_timeout=0.5):
        if method is None:
            break
        numbers.append(json.loads(body)["number"])
    connection.close()
    print(json.dumps({"messages": len(numbers), "distinct": len(set(numbers))}))


if __name__ == "__main__":
    main()
