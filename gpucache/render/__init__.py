"""Outcomes to text: tables for people, a JSON document for machines, progress. Decides nothing."""
