# profiles: basic, data_science, network, filesystem, strict
import cmath
import decimal
import fractions
from decimal import Decimal
from fractions import Fraction

decimal.getcontext().prec = 10
print(Decimal("0.1") + Decimal("0.2"), Fraction(1, 3) + Fraction(1, 6), fractions.Fraction("0.25"))
print(cmath.sqrt(-1), Decimal(10).sqrt())
