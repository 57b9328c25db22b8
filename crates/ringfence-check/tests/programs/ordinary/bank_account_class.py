# profiles: basic, data_science, network, filesystem, strict
class InsufficientFunds(Exception):
    def __init__(self, missing):
        super().__init__(f"{missing} missing")
        self.missing = missing


class Account:
    """Money of one person."""

    count = 0

    def __init__(self, owner, balance=0):
        self.owner = owner
        self._balance = balance
        self.__secret = owner[::-1]
        Account.count += 1

    @property
    def balance(self):
        return self._balance

    @balance.setter
    def balance(self, value):
        if value < 0:
            raise InsufficientFunds(-value)
        self._balance = value

    @classmethod
    def empty(cls, owner):
        return cls(owner)

    @staticmethod
    def currency():
        return "EUR"

    def __repr__(self):
        return f"{type(self).__name__}({self.owner!r}, {self._balance})"


a = Account("ann", 10)
a.balance += 5
try:
    a.balance -= 100
except InsufficientFunds as error:
    print(error.missing, error)
print(a, Account.empty("bob"), Account.currency(), Account.count)
