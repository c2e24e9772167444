import threading
from functools import partial

from service.http.plain import IdleStack, LastIdleFirst
from tests.service_process import wait_until


def has_length(items: list[str], count: int) -> bool:
    return len(items) == count


def test_who_began_to_wait_last_is_woken_first() -> None:
    lock = threading.Lock()
    idle = IdleStack(lock)
    woken: list[str] = []
    threads = []

    def wait(name: str) -> None:
        with lock:
            idle.wait()
            woken.append(name)

    for name in "abc":
        threads.append(threading.Thread(target=wait, args=(name,)))
        threads[-1].start()
        wait_until(lambda: len(idle._waiting) == len(threads), "the thread waits")
    for count in (1, 2):
        with lock:
            idle.notify()
        wait_until(partial(has_length, woken, count), "one is woken")
    with lock:
        idle.notify_all()
        idle.notify()  # nobody is left
    for thread in threads:
        thread.join()

    assert woken == ["c", "b", "a"]


class Task:
    """Notes which thread works on it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.thread = ""

    def service(self) -> None:
        self.thread = threading.current_thread().name
        self.done.set()


def test_calls_one_after_the_other_stay_on_one_thread() -> None:
    dispatcher = LastIdleFirst()
    dispatcher.set_thread_count(8)
    wait_until(lambda: dispatcher.active_count == 0, "all threads are idle")
    names = set()
    for _ in range(20):
        task = Task()
        dispatcher.add_task(task)
        task.done.wait()
        wait_until(lambda: dispatcher.active_count == 0, "the thread is idle again")
        names.add(task.thread)
    dispatcher.shutdown()

    assert len(names) == 1
    assert not dispatcher.threads


def test_a_dispatcher_is_idle_once_its_threads_are() -> None:
    dispatcher = LastIdleFirst()
    dispatcher.set_thread_count(1)
    wait_until(lambda: dispatcher.is_idle, "the thread waits")
    begun, ended = threading.Event(), threading.Event()

    class Slow(Task):
        def service(self) -> None:
            begun.set()
            ended.wait()

    dispatcher.add_task(Slow())
    begun.wait()
    was_idle = dispatcher.is_idle
    ended.set()
    wait_until(lambda: dispatcher.is_idle, "the thread waits again")
    dispatcher.shutdown()

    assert not was_idle
