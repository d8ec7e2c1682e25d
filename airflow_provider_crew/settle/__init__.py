"""
Kickoffs that settle themselves: without a response, the crew's call to an address of its own names the execution.

Experimental, and imported only if ``[crew] settle_kickoffs`` is on. Removing it is removing its three imports.
"""
