"""Runs with one fault planted in each, and clean ones, all really made: tiny tasks, real sandboxes, real grading."""
