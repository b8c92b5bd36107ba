"""The contracts of the axes: requirements that every technique of an axis must meet, shipped or not.

A contract is a list of requirements (``requirement``). Each axis has a module with its own; ``contracts`` lists them
all. ``testbed check`` tests one technique against the contract of its axis, and the tests of this project test all
shipped techniques. You can also test a technique of your own::

    from testbed.testing.contracts import failures
    from testbed.testing.subject import find

    def test_sign_sgd_keeps_the_contract_of_codecs():
        assert failures(find("./sign_sgd.py:SignSgd")) == []

Random cases are drawn from fixed seeds. Data sets, splits, shards, readers and trace formats have a short contract: the
technique works, and gives the same result twice. ``training`` trains with a technique in both worlds.
"""
