"""vLLM's own MessageQueue between three processes: the writer fills it and waits to write more, one reader has read all, the
other reads one message and sleeps. Says {"writer", "readers": [pid], "name" of the shared memory}."""

import json
import os
import time

from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

CHUNKS = 10


class Worker:
    def __init__(self, handle, rank):
        self.rpc_broadcast_mq = MessageQueue.create_from_handle(handle, rank)
        self.rpc_broadcast_mq.wait_until_ready()

    def read(self, count=None):
        for _ in iter(int, 1) if count is None else range(count):
            self.rpc_broadcast_mq.dequeue(indefinite=True)
        self.sleep()

    def sleep(self):
        time.sleep(100000)


def main():
    queue = MessageQueue(2, 2, max_chunk_bytes=1 << 20, max_chunks=CHUNKS)
    readers = []
    for rank, count in enumerate((None, 1)):
        pid = os.fork()
        if not pid:
            Worker(queue.export_handle(), rank).read(count)
        readers.append(pid)
    queue.wait_until_ready()
    print(json.dumps({"writer": os.getpid(), "readers": readers, "name": queue.buffer.shared_memory.name}), flush=True)
    for number in range(CHUNKS + 2):
        queue.enqueue(number)


main()
