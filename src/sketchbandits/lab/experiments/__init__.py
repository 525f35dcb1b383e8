"""What is played, and playing it.

    scenes → tasks → run_journal → pool, study

A scene draws arms, a hidden parameter and noise. A task is one policy in one run of a scene; `pool` plays many of them,
in parallel where only regret counts and alone where time does; `run_journal` keeps finished ones. A study gives
the outcomes by the names of its plan.
"""
