"""The contracts of the axes: what every technique of an axis has to do, shipped or from outside.

A contract is a list of requirements (``requirement``). Each axis has a module of them; ``contracts`` lists them all.
``testbed check`` tests one technique against the contract of its axis, and the tests of this project test all shipped
ones. A test of your own does so, too::

    from testbed.testing.contracts import failures
    from testbed.testing.subject import find

    def test_sign_sgd_keeps_the_contract_of_codecs():
        assert failures(find("./sign_sgd.py:SignSgd")) == []

Random cases are drawn from fixed seeds. Data sets, splits, placements, readers, trace formats and figures have a short
contract: one can be made, and made twice is the same. ``training`` trains with a technique in both worlds.
"""
