"""The tasks of reasoning-gym by name, and a class for each: `reasoning/leg_counting` is `tasks.LegCounting`.

The names stand here, so that listing them loads nothing. A class is made when it is asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from benchmax.errors import NotFoundError

TASKS: dict[str, str] = {
    "algebra": (
        "complex_arithmetic intermediate_integration polynomial_equations polynomial_multiplication "
        "simple_equations simple_integration"
    ),
    "algorithmic": (
        "ab base_conversion binary_alternation binary_matrix caesar_cipher count_primes cryptarithm "
        "game_of_life game_of_life_halting graph_color group_anagrams isomorphic_strings jugs letter_counting "
        "letter_jumble manipulate_matrix number_filtering number_sorting palindrome_generation "
        "palindrome_partitioning pool_matrix ransom_note rotate_matrix rotten_oranges sentence_reordering "
        "spell_backward spiral_matrix string_insertion string_manipulation string_splitting string_synthesis "
        "word_ladder word_sequence_reversal word_sorting"
    ),
    "arc": "arc_1d arc_agi rearc",
    "arithmetic": (
        "basic_arithmetic bitwise_arithmetic calendar_arithmetic chain_sum count_bits decimal_arithmetic "
        "decimal_chain_sum dice fraction_simplification gcd gsm_symbolic lcm leg_counting number_format "
        "power_function prime_factorization products time_intervals"
    ),
    "code": "bf codeio",
    "cognition": (
        "color_cube_rotation figlet_font modulo_grid needle_haystack number_sequence rectangle_count rubiks_cube"
    ),
    "games": (
        "boxnet countdown emoji_mystery futoshiki kakurasu knight_swap mahjong_puzzle maze mini_sudoku "
        "n_queens puzzle24 rush_hour sokoban sudoku survo tower_of_hanoi tsumego"
    ),
    "geometry": "advanced_geometry simple_geometry",
    "graphs": "course_schedule family_relationships largest_island path_star quantum_lock shortest_path",
    "induction": "acre list_functions",
    "logic": "aiw circuit_logic knights_knaves propositional_logic self_reference syllogism zebra_puzzles",
    "probability": "coin_flip",
}
"""By their subject. `composite` is left out: benchmax composes environments itself."""
NAMES: tuple[str, ...] = tuple(name for names in TASKS.values() for name in names.split())
MIXED = (
    "spell_backward", "letter_counting", "leg_counting", "chain_sum", "products", "count_bits",
    "simple_equations", "basic_arithmetic",
)  # fmt: skip
"""Short tasks with short answers, which a small model can learn."""
WITHOUT_ANSWER = frozenset({"boxnet", "rush_hour"})
"""Tasks that know no answer of their own, and only score one."""


def members() -> Sequence[str]:
    return NAMES


def member(name: str) -> Any:
    """The class of a task."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=3)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        raise NotFoundError(f"There is no reasoning task {name!r}. {hint}`benchmax env show reasoning` lists them.")
    return __getattr__(class_name(name))


def class_name(task: str) -> str:
    return "".join(word.capitalize() for word in task.split("_"))


def __getattr__(name: str) -> Any:
    task = next((each for each in NAMES if class_name(each) == name), None)
    if task is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from benchmax.envs.reasoning.reasoning_env import ReasoningEnv

    doc = f"Puzzles of the task `{task}` of reasoning-gym, scored by its own scorer."
    members = {"puzzle": task, "__module__": __name__, "__doc__": doc}
    return globals().setdefault(name, type(name, (ReasoningEnv,), members))
