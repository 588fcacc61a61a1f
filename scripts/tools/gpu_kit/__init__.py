"""What scripts/get-gpu-kit makes and scripts/run-on-gpu uses; standard library only: the machine with the GPU is bare."""
