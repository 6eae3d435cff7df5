"""The manual page gpucache-recipes(7): what operators copy. ``tests/test_recipes.py`` runs what it can.

Owns its sentences and files. Must not know an option: the examples are parsed by a test.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gpucache.cli.topics import filled, heading, see_also, title, verbatim

RECIPES = "gpucache-recipes"


class Recipe(NamedTuple):
    """A task with its files, each below the sentence that says where it belongs."""

    task: str
    steps: tuple[tuple[str, str], ...]


TIMER = """\
# ~/.config/systemd/user/gpucache-evict.service
[Service]
Type=oneshot
ExecStart=%h/.local/bin/gpucache evict --cache all --max-size 20G

# ~/.config/systemd/user/gpucache-evict.timer
[Timer]
OnCalendar=daily
RandomizedDelaySec=1h
Persistent=true
[Install]
WantedBy=timers.target"""
CRON = "17 4 * * *  .local/bin/gpucache evict --cache all --max-size 20G -q"
SHARED = """\
gpucache --root /srv/gpucache warm --shared --manifest programs.toml"""
SETTINGS = """\
# /etc/gpucache.toml
system_dirs = ["/srv/gpucache"]
max_size = "5GiB"
# where home directories have a small quota:
# dir = "/scratch/$USER/gpucache\""""
HOMES = """\
for home in /home/*; do
    uid=$(stat -c %u "$home")
    env -u XDG_CACHE_HOME HOME="$home" GPUCACHE_OWNER_UID="$uid" \\
        gpucache --json inspect 2>/dev/null |
        python3 -c 'import json, sys
home, own = sys.argv[1], json.load(sys.stdin)["summary"]
total = sum(one["size_bytes"] for one in [own, *own["caches"]]
            if one["root"].startswith(home))
print(f"{total / 2**20:10.1f} MiB  {home}")' "$home"
done"""
DOCKERFILE = """\
FROM python:3.13-slim AS warmed
RUN pip install /wheels/gpucache-*.whl nvidia-cuda-nvrtc
COPY all.toml kernels /app/
RUN gpucache --root /cache warm --shared --manifest /app/all.toml

FROM python:3.13-slim
COPY --from=warmed /cache /cache
ENV GPUCACHE_SYSTEM_DIRS=/cache"""
COMPOSE = """\
services:
  app:
    image: app
    environment: {GPUCACHE_SYSTEM_DIRS: /cache, GPUCACHE_DIR: /own}
    volumes: ["own:/own"]
volumes:
  own:"""
KUBERNETES = """\
spec:
  containers:
  - name: app
    image: registry/app
    env: [{name: GPUCACHE_SYSTEM_DIRS, value: /cache}]
    volumeMounts: [{name: cache, mountPath: /cache, readOnly: true}]
  volumes:
  - name: cache
    image: {reference: "registry/app-cache:1"}"""
GITHUB = """\
- uses: actions/cache@v4
  with:
    path: ~/.cache/gpucache
    key: gpucache-${{ runner.os }}-${{ github.sha }}
    restore-keys: gpucache-${{ runner.os }}-
- run: gpucache run -- python -m pytest
- run: gpucache evict --max-size 500M
- if: always()
  run: |
    gpucache inspect --stats --format markdown \\
        >> "$GITHUB_STEP_SUMMARY"
    gpucache inspect --stats --zero --quiet"""
GITLAB = """\
test:
  variables: {GPUCACHE_DIR: "$CI_PROJECT_DIR/.gpucache"}
  cache: {key: gpucache, paths: [.gpucache]}
  script:
  - gpucache run -- python -m pytest
  - gpucache evict --max-size 500M"""
SLURM = """\
#!/bin/sh
#SBATCH --array=1-8
export GPUCACHE_DIR=/scratch/$USER/gpucache
gpucache warm --recording recording \\
    --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" """.rstrip()
METRICS = """\
gpucache inspect --stats --format prometheus > gpucache.prom.new
mv gpucache.prom.new /var/lib/node_exporter/textfile/gpucache.prom"""

EVERY = (
    Recipe(
        "A LIMIT EVERY DAY",
        (
            ("With systemd, then 'systemctl --user enable --now gpucache-evict.timer':", TIMER),
            ("With cron:", CRON),
        ),
    ),
    Recipe(
        "A MACHINE FOR MANY USERS",
        (
            ("A cache that others can write to is refused. Root fills one that all users read:", SHARED),
            (
                "The settings of the machine name it. A user's own file is ~/.config/gpucache/settings.toml. "
                "The keys are the variables of gpucache(1), in lower case and without GPUCACHE_; a variable "
                "that is set wins over the user's file, and that over the machine's. max_size limits each "
                "user's cache:",
                SETTINGS,
            ),
            ("Root sees the size of every user's caches, one line each:", HOMES),
        ),
    ),
    Recipe(
        "IMAGES",
        (
            ("Fill the cache in a stage of its own, where no GPU is needed:", DOCKERFILE),
            ("With Compose, programs keep what the image lacks in a volume:", COMPOSE),
            ("In Kubernetes 1.35 or newer a cache that was pushed as an image is a volume:", KUBERNETES),
        ),
    ),
    Recipe(
        "CONTINUOUS INTEGRATION",
        (
            ("GitHub Actions, with the totals in the summary of the job:", GITHUB),
            ("GitLab:", GITLAB),
        ),
    ),
    Recipe(
        "A JOB ARRAY",
        (
            (
                "Each task of a Slurm array builds its part into one directory; run the array again after a "
                "lost node, as what was built hits:",
                SLURM,
            ),
        ),
    ),
    Recipe(
        "METRICS",
        (("Counters for the textfile collector of Prometheus' node_exporter, from cron:", METRICS),),
    ),
)


def page() -> Iterator[str]:
    """The lines of the page."""
    yield from title(RECIPES, 7, "timers, shared machines, images, continuous integration and job arrays")
    for recipe in EVERY:
        yield heading(recipe.task)
        for number, (sentence, text) in enumerate(recipe.steps):
            yield from ((".PP",) if number else ())
            yield filled(sentence)
            yield from verbatim(text)
    yield from see_also(
        [*((f"gpucache-{verb}", 1) for verb in ("evict", "warm", "inspect")), ("gpucache-fleet", 7)]
    )
