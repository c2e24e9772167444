from scoring.faults import Fault, FaultsError, list_faults

FAULTS = (Fault("a", "wanted 1, got 2"), Fault("", "wanted b"))


def test_an_error_names_every_fault_on_one_line() -> None:
    error = FaultsError(iter(FAULTS))

    assert str(error) == "a: wanted 1, got 2; wanted b"
    assert error.faults == FAULTS


def test_a_list_of_faults_is_cut() -> None:
    assert list_faults("x", FAULTS) == (
        "x: 2 fault(s)\n  a: wanted 1, got 2\n  wanted b"
    )
    assert list_faults("x", FAULTS, 1) == (
        "x: 2 fault(s)\n  a: wanted 1, got 2\n  and 1 more"
    )
