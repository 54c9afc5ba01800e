"""Instants and windows of shapes to 50 digits, by mpmath.

    python3 testdata/shapes/instants.py > testdata/shapes/instants.txt

Lines `due NAME N NS` have the instant at which the integral of the rate reaches N, by halving.
Lines `poisson NAME SEED N NS` have operation N of a Poisson process over the shape.
Lines `window NAME NS OPERATIONS` have the most that the integral gains in any NS + 1 nanoseconds.
`crates/rategate-core/tests/shape/exact.rs` builds the shapes, under the same names.
"""

from mpmath import cos, floor, mp, mpf, nstr, pi, sin, sqrt

mp.dps = 90
S = 10**9
MIN = 60 * S
HOUR = 3600 * S
NEVER = (0, 1)
# Less than any difference between two instants or integrals here, and more than any error.
HAIR = mpf(10) ** -50


def per(permits, ns=S):
    return (permits, ns)


def rate(pair):
    return mpf(pair[0]) / pair[1]


class Line:
    """A rate that moves evenly over a length, or stays for ever."""

    def __init__(self, start, end=None, length=None):
        self.start, self.length = rate(start), None if length is None else mpf(length)
        self.slope = 0 if end is None else (rate(end) - self.start) / length

    def reached(self, t):
        t = t if self.length is None else min(t, self.length)
        return self.start * t + self.slope * t * t / 2

    def inverse(self, n):
        return 2 * n / (self.start + sqrt(self.start**2 + 2 * n * self.slope))

    def bends(self, until):
        return [mpf(0)] + ([] if self.length is None else [self.length])


class Sine:
    def __init__(self, mean, amplitude, cycle, phase):
        self.mean, self.amplitude, self.cycle = rate(mean), rate(amplitude), mpf(cycle)
        self.phase, self.length = mpf(phase[0]) / phase[1], None

    def reached(self, t):
        swing = self.amplitude * self.cycle / (2 * pi)
        angle = 2 * pi * self.phase
        return self.mean * t + swing * (cos(angle) - cos(angle + 2 * pi * t / self.cycle))


class Lasting:
    def __init__(self, whole, length):
        self.whole = whole
        self.length = mpf(length) if whole.length is None else min(mpf(length), whole.length)

    def reached(self, t):
        return self.whole.reached(min(t, self.length))

    def bends(self, until):
        return [bend for bend in self.whole.bends(until) if bend < self.length] + [self.length]


class Then:
    def __init__(self, *parts):
        self.parts, self.starts = parts, [mpf(0)]
        for part in parts[:-1]:
            self.starts.append(self.starts[-1] + part.length)
        last = parts[-1].length
        self.length = None if last is None else self.starts[-1] + last

    def reached(self, t):
        return sum(p.reached(t - s) for p, s in zip(self.parts, self.starts) if s <= t)

    def bends(self, until):
        return [s + bend for p, s in zip(self.parts, self.starts) for bend in p.bends(until)]


class Plus:
    def __init__(self, *parts):
        self.parts, lengths = parts, [part.length for part in parts]
        self.length = None if None in lengths else max(lengths)

    def reached(self, t):
        return sum(part.reached(t) for part in self.parts)

    def bends(self, until):
        return [bend for part in self.parts for bend in part.bends(until)]


class Times:
    def __init__(self, each, times):
        self.each, self.times, self.length = each, times, each.length * times

    def reached(self, t):
        over = min(floor(t / self.each.length), self.times)
        rest = 0 if over == self.times else self.each.reached(t - over * self.each.length)
        return over * self.each.reached(self.each.length) + rest

    def bends(self, until):
        count = min(int(until / self.each.length) + 3, self.times)
        return [o * self.each.length + bend for o in range(count) for bend in self.each.bends(until)]


class Scaled:
    """`rate` times the rate, in `time` times the time."""

    def __init__(self, whole, rate=(1, 1), time=(1, 1)):
        self.whole, self.rate, self.time = whole, mpf(rate[0]) / rate[1], mpf(time[0]) / time[1]
        self.length = None if whole.length is None else whole.length * self.time

    def reached(self, t):
        return self.rate * self.whole.reached(t / self.time)

    def bends(self, until):
        return [bend * self.time for bend in self.whole.bends(until / self.time)]


def constant(pair):
    return Line(pair)


def steps(*parts):
    return Then(*[Lasting(constant(pair), length) for pair, length in parts])


def stages(start, *parts):
    starts = [start] + [pair for pair, _ in parts]
    return Then(*[Line(a, b, length) for a, (b, length) in zip(starts, parts)])


def saw(start, end, cycle):
    return Times(Line(start, end, cycle), 2**64 - 1)


CLIMB = Line(NEVER, per(100), 10 * S)
TOUCHING = Sine(per(1000), per(1000), HOUR, (3, 4))
SINE = Sine(per(100), per(50), MIN, (1, 1))
PEAK = Then(Line(NEVER, per(1000), 4 * S), Line(per(1000), NEVER, 10 * S))

SHAPES = {
    "constant": constant(per(3)),
    "constant-of-a-prime": constant(per(1, 7)),
    "constant-at-its-fastest": constant(per(10**9)),
    "steps": steps((per(3), 7 * S), (per(999983), 1100 * S), (per(5), S)),
    "spike": Then(steps((per(10), 2 * S), (per(1000), S)), constant(per(10))),
    "ramp-up": Line(per(7), per(999983), HOUR),
    "ramp-down": Line(per(999983), per(7), HOUR),
    "ramp-from-zero": Line(NEVER, per(999983), HOUR),
    "ramp-nearly-flat": Line(per(1000000), per(999999), 2000 * S),
    "stages-of-k6": stages(NEVER, (per(1), 5 * S), (per(1), S), (NEVER, 5 * S)),
    "stages": stages(
        NEVER, (per(10**6), 10 * MIN), (per(10**6), 10 * MIN), (per(7), 20 * MIN), (per(9), MIN)
    ),
    "sawtooth": saw(NEVER, per(100), 10 * S),
    "sawtooth-down": saw(per(100), per(3), 7 * S),
    "sine": SINE,
    "sine-of-a-quarter": Sine(per(100), per(50), MIN, (1, 4)),
    "sine-of-five-sevenths": Sine(per(100), per(60), MIN, (5, 7)),
    "sine-that-touches-zero": TOUCHING,
    "sine-of-a-day": Sine(per(10**6), per(999983), 24 * HOUR, (1, 3)),
    "sum": Plus(CLIMB, constant(per(3))),
    "sum-of-sines": Plus(SINE, Sine(per(7), per(7), 17 * S, (2, 3))),
    "sum-of-all": Plus(saw(NEVER, per(100), 10 * S), SINE, constant(per(1, 7 * S))),
    "rate-of-a-ramp": Scaled(Line(per(7), per(999983), HOUR), rate=(7, 3)),
    "rate-of-a-sine": Scaled(Sine(per(100), per(50), MIN, (1, 4)), rate=(11, 13)),
    "time-of-a-saw": Scaled(saw(per(100), per(3), 7 * S), time=(7, 11)),
    "time-of-a-sine": Scaled(TOUCHING, time=(7, 11)),
    "rate-and-time": Scaled(Then(CLIMB, constant(per(999983))), rate=(3, 7), time=(13, 9)),
    "then": Then(Line(NEVER, per(7), 3 * S), Lasting(SINE, 50 * S), constant(per(999983))),
    "repeated": Times(Then(CLIMB, Lasting(SINE, 25 * S)), 2**40),
    "peak": PEAK,
}

WINDOWS = {
    "constant": [0, 333333332, 333333333, S - 1, S],
    "constant-of-a-prime": [0, 6, 7, 12345],
    "spike": [9 * 10**6, S // 2, S - 1, 3 * S - 1],
    "steps": [0, 999, 10**6],
    "ramp-down": [0, 10**6, 12345678],
    "stages-of-k6": [0, S - 1, 2 * S - 1, 5 * S, 11 * S],
    "sawtooth": [9 * 10**6, S // 2, S - 1, 10 * S - 1, 25 * S - 1],
    "sawtooth-down": [S // 2, 7 * S - 1, 20 * S - 1],
    "sine": [10 * S - 1, 30 * S - 1, MIN - 1, 75 * S - 1],
    "sine-of-a-quarter": [10 * S - 1, 30 * S - 1, MIN - 1, 75 * S - 1],
    "sine-of-five-sevenths": [10 * S - 1, 30 * S - 1, MIN - 1, 75 * S - 1],
    "sum": [S // 2, S - 1, 10 * S - 1],
    "rate-of-a-sine": [10 * S - 1, 30 * S - 1, MIN - 1],
    "time-of-a-saw": [S // 2, 7 * S - 1, 20 * S - 1],
    "peak": [9 * 10**6, S // 2, S - 1, 3 * S - 1, 100 * S],
}


def first(shape, n):
    """The least instant by which the integral has reached n, or None."""
    low, high = mpf(0), mpf(2) ** 64
    if shape.reached(high) < n:
        return None
    while high - low > HAIR / 1000:
        middle = (low + high) / 2
        low, high = (low, middle) if shape.reached(middle) >= n else (middle, high)
    if isinstance(shape, Line) and n > 0:
        assert abs(shape.inverse(mpf(n)) - high) < HAIR
    return high


def exponentials(seed):
    """The numbers of `Random::exponential`, in 2^-32."""
    mask = 2**64 - 1

    def bits():
        nonlocal seed
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        mixed = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        return mixed ^ (mixed >> 31)

    while True:
        for whole in range(64):
            one = last = bits()
            length, falling = 0, True
            while falling:
                following = bits()
                falling, last, length = following < last, following, length + 1
            if length % 2 == 1:
                yield (whole << 32) | (one >> 32)
                break
        else:
            yield 64 << 32


def gained(shape, span):
    """The most that the integral gains in any span."""
    if isinstance(shape, Scaled):
        return shape.rate * gained(shape.whole, span / shape.time)
    if isinstance(shape, Sine):
        swing = shape.amplitude * shape.cycle / pi
        return shape.mean * span + swing * abs(sin(pi * span / shape.cycle))
    gain = lambda t: shape.reached(t + span) - shape.reached(t)
    bends = shape.bends(span)
    starts = sorted({max(t, mpf(0)) for bend in bends for t in (bend, bend - span)})
    most = max(gain(t) for t in starts)
    for low, high in zip(starts, starts[1:]):
        # A parabola between two of them, by three points.
        left, middle, right = gain(low), gain((low + high) / 2), gain(high)
        bow = left - 2 * middle + right
        if bow < 0:
            peak = (low + high) / 2 + (high - low) * (left - right) / (4 * bow)
            if low < peak < high:
                most = max(most, gain(peak))
    return most


def digits(number):
    return nstr(number, 50, min_fixed=-(10**4), max_fixed=10**4)


def main():
    for name, shape in SHAPES.items():
        numbers = range(1, 8) if name == "stages-of-k6" else (1, 10**3, 10**9)
        for n in numbers:
            at = first(shape, n)
            print("due", name, n, "never" if at is None else digits(at))
    gaps, total, wanted = exponentials(7), 0, (0, 1, 10**3, 10**6)
    for n in range(10**6 + 1):
        total += next(gaps)
        if n in wanted:
            for name in ("constant", "ramp-up", "stages", "sine", "sum-of-sines", "then"):
                print("poisson", name, 7, n, digits(first(SHAPES[name], mpf(total) / 2**32)))
    for name, spans in WINDOWS.items():
        for span in spans:
            print("window", name, span, digits(gained(SHAPES[name], mpf(span) + 1)))


main()
