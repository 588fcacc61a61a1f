"""toy_router.py PORT...: a STAND-IN of routers that are Python programs: each port is that of an instance, which it keeps in a
way of its own. Prints {port: in words}."""

import argparse
import json
import sys
import threading

PORTS = [int(word) for word in sys.argv[1:]]
WAYS = ["a list of URLs", "clients with host and port", "an object's attribute", "a local namespace", "deep in a dict"]
kept = dict(zip(PORTS, WAYS))
note = "see http://example.org/readme and http://127.0.0.1/ and https://:80"


class Client:
    def __init__(self, base_url):
        self.base_url = base_url


class LoadBalancer:
    def __init__(self, host, port):
        self.host, self.port = host, str(port)


prefill_urls = [f"http://127.0.0.1:{PORTS[0]}", "http://10.9.8.7:8100/v1"]
state = {"prefill_clients": [{"host": "localhost", "port": PORTS[1], "id": 0}]}
lb = LoadBalancer("127.0.0.1", PORTS[2])
loop = {"self": None}
loop["self"] = loop
app = {"state": {"clients": (Client(f"http://localhost:{PORTS[4]}/v1?x=1"),)}}


def main():
    options = argparse.Namespace(decode=f"http://[::1]:{PORTS[3]}", workers=[loop] * 300)
    print(json.dumps(kept), flush=True)
    threading.Event().wait()
    return options


main()
