# SPDX-License-Identifier: MIT
"""A graph of follows kept by a test, which says what the daemon must answer,
and what it takes to compare the two."""
import collections


def order(entries):
    """[(id, time)], newest first; equal times by bytes of the ids, as in a
    sorted set."""
    return sorted(entries, key=lambda each: (each[1], str(each[0]).encode()),
                  reverse=True)


class Graph:
    """Who follows whom since when."""

    def __init__(self):
        self.followees = collections.defaultdict(dict)
        self.fans = collections.defaultdict(dict)

    def follow(self, user, other, time):
        """A repeated one keeps the first time."""
        if other not in self.followees[user]:
            self.set(user, other, time)

    def set(self, user, other, time):
        self.followees[user][other] = self.fans[other][user] = time

    def unfollow(self, user, other):
        self.followees[user].pop(other, None)
        self.fans[other].pop(user, None)

    def since(self, user, other):
        """None: not at all."""
        return self.followees[user].get(other)

    def edges(self):
        return [(user, other) for user, others in self.followees.items()
                for other in others]

    def entries(self, command, user, other=None):
        """What the pages of a command are taken from: [(id, time)], newest
        first."""
        if command == "FOLLOWERS":
            return order(self.fans[user].items())
        mine = order(self.followees[user].items())
        if command == "MUTUALS":
            return [each for each in mine if each[0] in self.fans[user]]
        if command == "COMMON":
            return [each for each in mine
                    if each[0] in self.followees[other]]
        return mine

    def relation(self, user, other):
        if user == other:
            return 0
        return (other in self.followees[user]) + \
            2 * (other in self.fans[user])

    def counts(self, user):
        return [len(self.followees[user]), len(self.fans[user])]


def walk(ask, *request, count=None):
    """All items of a CURSOR walk, from its first page to its last."""
    items, cursor = [], "0"
    options = ("COUNT", count) if count else ()
    while True:
        cursor, more = ask(*request, "CURSOR", cursor, *options)
        items += more
        if cursor == "0":
            return items
