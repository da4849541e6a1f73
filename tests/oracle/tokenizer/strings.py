"""Test strings: every script, emoji, marks, white space, code, numbers, random bytes, markup look-alikes."""
import random
import unicodedata

RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF),
          (0x531, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x900, 0x97F), (0x980, 0x9FF),
          (0xA00, 0xA7F), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xE00, 0xE7F), (0xE80, 0xEFF), (0xF00, 0xFFF),
          (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF),
          (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F),
          (0x2070, 0x209F), (0x20A0, 0x20CF), (0x2100, 0x214F), (0x2150, 0x218F), (0x2190, 0x21FF),
          (0x2200, 0x22FF), (0x2460, 0x24FF), (0x2500, 0x257F), (0x2580, 0x259F), (0x2600, 0x26FF),
          (0x2700, 0x27BF), (0x2C00, 0x2C5F), (0x2E80, 0x2FDF), (0x3000, 0x303F), (0x3040, 0x30FF),
          (0x3100, 0x312F), (0x3130, 0x318F), (0x3200, 0x33FF), (0x3400, 0x3500), (0x4E00, 0x9FFF),
          (0xA000, 0xA0FF), (0xA640, 0xA69F), (0xAC00, 0xD7A3), (0xE000, 0xE010), (0xF900, 0xFAFF),
          (0xFB00, 0xFB4F), (0xFB50, 0xFDFF), (0xFE00, 0xFE0F), (0xFE30, 0xFE4F), (0xFF00, 0xFFEF),
          (0x10330, 0x1034F), (0x10400, 0x1044F), (0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF),
          (0x1E900, 0x1E95F), (0x1F000, 0x1F0FF), (0x1F130, 0x1F1FF), (0x1F300, 0x1F6FF),
          (0x1F900, 0x1F9FF), (0x20000, 0x20100), (0xE0020, 0xE007F)]

WORDS = ("What does ocean mean? the a of An I'll don't WE'VE it'S you'd strasse Straße naïve café ÉCOLE İstanbul "
         "ſharp K ﬁ ﬀ ǅ Ⓐ ① ½ ² ٣ १२३ 12345678901 3.14159 1e-9 0xFF 1,000,000 $5 #tag @me http://x.y/z?q=1&r=2 "
         "foo_bar fooBar __init__ == != <= >= -> => :: // /* */ && || ++ -- ... !!! ??? \"quoted\" 'single' "
         "`code` {x:y} [a,b] (c) \\n \\u00e9 日本語 日本語テキスト 中文字符 한국어 안녕하세요 "
         "Привет мир Ελληνικά עִבְרִית العَرَبِيَّة हिन्दी தமிழ் ภาษาไทย မြန်မာ ქართული አማርኛ "
         "👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 ❤️ e\u0301 a\u0323\u0301 a\u0301\u0323 \u1100\u1161\u11a8 \ufdfa Å "
         "word words sword word. no NO").split()

SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", "\u00a0", "\u3000", "\u2003",
          "\u180e", "\u200b", "\u200d", "\u2028", "\u0085", "\x0b", "\x0c", " \n ", "\n \n", "    ",
          "\ufeff", "▁", "▁▁", "\x1f", "\x00"]

MARKUP = ["<bos>", "<eos>", "<pad>", "<unk>", "<|turn>", "<turn|>", "<|im_start|>", "<|im_end|>",
          "<|endoftext|>", "<think>", "</think>", "<tool_call>", "<｜User｜>", "<｜Assistant｜>",
          "<｜begin▁of▁sentence｜>", "｜DSML｜", "<dsml:", "</dsml:", "<Mark>", "<mark>", "<table>", "<b>",
          "<0x0A>", "<0xE2>", "<unused7>", "<|im_start", "|>", "<", ">", "[INST]", "<|turn>user\n", "<<bos>>",
          "<bo", "s>", "< bos >", "<|endoftext|", "<think", "An", "word"]

CODE = ["def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; ++i) {\n\ta[i] += b[i];\n}\n",
        "{\"key\": [1, 2.5, null, true]}", "SELECT * FROM t WHERE a='b';", "<div class=\"x\">hi</div>\n",
        "#include <stdio.h>\r\nint main(void)\r\n{\r\n}\r\n", "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "$$\\int_0^1 x^2\\,dx$$", "```python\nprint('hi')\n```\n\n\n"]


def known(cp):
    """Assigned in the Unicode version of this Python (14 in 3.11), as of the C libraries; newer characters
    have a class in one library and none in the other."""
    return unicodedata.category(chr(cp)) != "Cn"


def pick(r, low, high):
    while True:
        cp = r.randint(low, high)
        if known(cp):
            return chr(cp)


def char(r):
    return pick(r, *r.choice(RANGES))


def one(r):
    kind = r.randrange(13)
    if kind == 0:
        low, high = r.choice(RANGES)
        return "".join(pick(r, low, high) for _ in range(r.randint(1, 30)))
    if kind == 1:
        return "".join(char(r) for _ in range(r.randint(1, 20)))
    if kind == 2:
        return " ".join(r.choice(WORDS) for _ in range(r.randint(1, 12)))
    if kind == 3:
        return "".join(r.choice(WORDS) + r.choice(SPACES) for _ in range(r.randint(1, 10)))
    if kind == 4:
        return "".join(r.choice(SPACES) for _ in range(r.randint(1, 12)))
    if kind == 5:
        return "".join(r.choice(r.choice([MARKUP, WORDS, SPACES])) for _ in range(r.randint(1, 10)))
    if kind == 6:
        return "".join(r.choice(CODE) for _ in range(r.randint(1, 3)))
    if kind == 7:
        return bytes(r.randrange(256) for _ in range(r.randint(1, 40))).decode("utf-8", "replace")
    if kind == 8:
        return r.choice(WORDS + SPACES)[:1] * r.choice([3, 17, 33, 64, 200])
    if kind == 9:
        return "".join(r.choice("0123456789.,-+eE ½²٣१①") for _ in range(r.randint(1, 30)))
    if kind == 10:
        return "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(r.randint(20, 120)))
    if kind == 11:
        base = r.choice(["e", "a", "o", "▁", " ", ">", "क", "ᄀ"])
        return "".join(base + "".join(chr(r.randint(0x300, 0x345)) for _ in range(r.randint(0, 4)))
                       for _ in range(r.randint(1, 8)))
    return r.choice(MARKUP) + one(r) + r.choice(MARKUP)


def strings(count, seed=1):
    r = random.Random(seed)
    result = ["", " ", "a", "\n", "\x00"]
    while len(result) < count:
        result.append(one(r))
    return result[:count]


def code_points():
    """Every assigned code point (of the rarer planes a sample) in a small context."""
    result = []
    for cp in range(0x1, 0x110000):
        if not 0xD800 <= cp < 0xE000 and known(cp) and (cp < 0x20000 or cp % 997 == 0 or 0xE0000 <= cp < 0xE0200):
            c = chr(cp)
            result.append(f"a{c}b {c}{c}1{c}'{c}S\n{c}")
    return result
