"""Dask: a task on each of two workers."""

from distributed import Client, LocalCluster, wait

from tests.launchers.programs.job import train

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        tasks = [client.submit(train, workers=[name], pure=False) for name in client.scheduler_info()["workers"]]
        wait(tasks)
        client.gather(tasks)
