"""Macaw's random streams (core/random.h): Philox4x32-10 (Salmon et al. 2011) under the XXH3 hash of a stream's name."""
import hashlib
import math
import struct

SERVER_RULE = 17  # the purpose of what a rule draws on the server
WORD, WORD64 = 2 ** 32 - 1, 2 ** 64 - 1
SECRET = bytes.fromhex("b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
                       "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c")
PRIMES = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x85EBCA77C2B2AE63  # XXH64's first, second and fourth


def read64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def mixed(data, at, secret):
    product = (read64(data, at) ^ read64(SECRET, secret)) * (read64(data, at + 8) ^ read64(SECRET, secret + 8))
    return (product & WORD64) ^ (product >> 64)


def avalanche(h):
    h = ((h ^ (h >> 37)) * 0x165667919E3779F9) & WORD64
    return h ^ (h >> 32)


def xxh3_128(data):
    """The low and the high half, of 33 to 64 bytes."""
    assert 32 < len(data) <= 64
    low, high = len(data) * PRIMES[0] & WORD64, 0
    for begin, end, secret in (16, len(data) - 32, 32), (0, len(data) - 16, 0):
        low = (low + mixed(data, begin, secret)) & WORD64
        low ^= (read64(data, end) + read64(data, end + 8)) & WORD64
        high = (high + mixed(data, end, secret + 16)) & WORD64
        high ^= (read64(data, begin) + read64(data, begin + 8)) & WORD64
    last = low * PRIMES[0] + high * PRIMES[2] + len(data) * PRIMES[1]
    return avalanche((low + high) & WORD64), -avalanche(last & WORD64) & WORD64


class RandomStream:
    def __init__(self, seed, purpose, round=0, phase=0, client=0, extra=0):
        low, high = xxh3_128(struct.pack("<6Q", seed, purpose, round, phase, client, extra))
        self.key, self.high = (low & WORD, low >> 32), (high & WORD, high >> 32)
        self.block, self.words, self.spare = 0, [], None

    @staticmethod
    def of_server(seed, name, round=0):
        """What a rule draws on the server in a round, under a name of its own."""
        number = read64(hashlib.blake2b(name.encode(), digest_size=32).digest(), 0)
        return RandomStream(seed, SERVER_RULE, round, extra=number)

    def next_block(self):
        c, (k0, k1) = [self.block & WORD, self.block >> 32, *self.high], self.key
        for _ in range(10):
            p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(p1 >> 32) ^ c[1] ^ k0, p1 & WORD, (p0 >> 32) ^ c[3] ^ k1, p0 & WORD]
            k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
        self.block += 1
        return c

    def next64(self):
        if not self.words:
            self.words = self.next_block()
        low, high, *self.words = self.words
        return low | high << 32

    def uniform(self):
        return (self.next64() >> 11) * 2.0 ** -53

    def below(self, bound):
        """Lemire 2019."""
        product = self.next64() * bound
        while product & WORD64 < 2 ** 64 % bound:
            product = self.next64() * bound
        return product >> 64

    def shuffle(self, values):
        """Fisher and Yates, from the back."""
        for left in range(len(values), 1, -1):
            place = self.below(left)
            values[left - 1], values[place] = values[place], values[left - 1]

    def normal(self):
        """Box and Muller; the sine is kept for the next one."""
        if self.spare is not None:
            value, self.spare = self.spare, None
            return value
        radius, angle = math.sqrt(-2 * math.log(1 - self.uniform())), 2 * math.pi * self.uniform()
        self.spare = radius * math.sin(angle)
        return radius * math.cos(angle)
