"""The verbs: plans that are pure, and runs that yield outcomes one by one. None of them prints."""
