"""Figures. Each function takes runs and gives a matplotlib Figure; nothing here touches global state of pyplot."""
