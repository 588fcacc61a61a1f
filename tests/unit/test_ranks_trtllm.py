"""TensorRT-LLM's processes in a FAKE /proc, and what is found of them."""


def test_trtllm_mpi_workers_by_module_and_environment(proc):
    for n in range(2):
        proc.add(["/usr/bin/python3", "-m", "tensorrt_llm.llmapi.mgmn_worker_node"], environ={"OMPI_COMM_WORLD_RANK": n})
    assert [(r.engine, r.label, r.ranks) for r in proc.ranks()] == [
        ("trtllm", "rank-0", {"world": 0}),
        ("trtllm", "rank-1", {"world": 1}),
    ]


def test_an_mpi4py_pool_is_an_engine_only_by_its_libraries_or_memory(proc):
    proc.add(["/usr/bin/python3", "-m", "mpi4py.futures.server"], environ={"OMPI_COMM_WORLD_RANK": 0})
    assert proc.ranks() == []
    pid = proc.add(
        ["/usr/bin/python3", "-m", "mpi4py.futures.server"],
        environ={"OMPI_COMM_WORLD_RANK": 1},
        maps="1-2 r-xp 0 0:0 1 /v/tensorrt_llm/libs/libtensorrt_llm.so\n",
    )
    assert [(r.engine, r.pid, r.ranks) for r in proc.ranks()] == [("trtllm", pid, {"world": 1})]
