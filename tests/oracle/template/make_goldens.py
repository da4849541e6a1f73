"""Render small chat templates with jinja2, set as transformers sets it, for tests/golden/template/cases.json.

    python make_goldens.py > ../../golden/template/cases.json

jinja2 3.1.6. A case is {"template", "variables", "text"}; "error" in place of "text": rendering must fail.
"""
import json
import os
import sys

from jinja2 import TemplateError

import differential

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "../../../demo/dictionary-moe/chat_template.jinja")

CHAT = {"messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi\n"},
                     {"role": "assistant", "content": "Hello <turn|>"}, {"role": "user", "content": "ça va?"}],
        "bos_token": "<bos>", "eos_token": "<eos>", "add_generation_prompt": True}
DATA = {"name": "World", "n": 3, "zero": 0, "pi": 3.25, "yes": True, "no": False, "nothing": None, "empty": "",
        "list": [1, 2, 3, 4, 5], "words": ["b", "a", "Ünï"], "nested": {"a": {"b": [10, {"c": "deep"}]}, "k": "v"},
        "text": "  the quick brown-fox (jumps)  ", "quote": "it's \"x\"\\\n\t\u00e9\u200b\x07", "big": 1e20,
        "small": 0.00001, "neg": -7, "lines": "a\nb\nc", "users": [{"n": "x", "on": True}, {"n": "y", "on": False},
                                                                   {"n": "z", "on": True}]}

TEMPLATES = [
    # text and white space
    "plain", "", "\n", "\n\n", "a\n", "a\r\nb\rc\r\n", "{{ name }}", "a {{ name }} b\n{{ name }}\n",
    "  {% if yes %}\n  x\n  {% endif %}\ny", "  {%+ if yes %}\n  x\n  {%+ endif %}\ny",
    "a\n  {%- if yes -%}\n  x  \n{%- endif -%}\n  b", "a {{- name -}} b", "a\n\n{{- name -}}\n\nb",
    "{# note #}\nx", "  {# note #}\nx", "x  {# note #}\n y", "x  {#- note -#}\n y", "{#+ keep #}\n", "{#-#}x",
    "{% if yes +%}\nx{% endif %}", "  {{ name }}\n  {% set a = 1 %}\n\n{{ a }}", "{% if yes %}a{% endif %}\n\nb",
    "\t{% set a = 1 %}x", "x {% set a = 1 %}y", "{% set a = 1 %}  {% set b = 2 %}z",
    "{% set a = 1 %}\n  {% set b = 2 %}\nz", "{{ name }}  {% set b = 2 %}\nz", "{{ '{{' }} {{ \"}}\" }} {{ '%}' }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {'b': 1}} }}", "a{{ '' }}\n{{ '\\n' }}b", "{ { } } % #",
    # literals
    "{{ 'a' 'b' \"c\" }}", "{{ 'a\\nb\\t\\'\\\"\\\\ \\x41 \\u00e9 \\U0001F600 \\101 \\q' }}", "{{ 1_000 + 0 }}",
    "{{ 1.5 }} {{ 2.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 123456789.123 }} {{ 1e15 }}",
    "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}", "{{ [1, 'a', none, true, 1.0, [2]] }}",
    "{{ {'a': 1, 'b': [1, {'c': none}]} }}", "{{ (1, 2)[1] }} {{ (3) }}", "{{ [1, 2,] }} {{ {'a': 1,} }}",
    "{{ [quote] }}", "{{ [\"it's\"] }} {{ ['\"'] }} {{ ['\\'\"'] }}", "{{ [words, pi, big, small] }}",
    "{{ big }} {{ small }} {{ pi }} {{ neg }}", "{{ 100000000000000000 }}", "{{ -0.0 }} {{ 0.1 + 0.2 }}",
    # names and access
    "{{ missing }}|{{ nested.missing }}|{{ list[99] }}|{{ name[50] }}", "{{ missing.x }}", "{{ missing['x'] }}",
    "{{ nested.a.b[1].c }} {{ nested['a']['b'][0] }} {{ list[-1] }} {{ name[0] }} {{ name[-1] }} {{ list.0 }}",
    "{{ list[1:3] }} {{ list[:2] }} {{ list[3:] }} {{ list[::-1] }} {{ list[-2:] }} {{ list[::2] }} {{ list[5:1] }}",
    "{{ name[1:3] }} {{ name[::-1] }} {{ words[2][1:] }} {{ words[2][::-1] }} {{ list[:] }} {{ list[none:2] }}",
    "{{ list[10:20] }} {{ list[-100:2] }} {{ list[4:0:-2] }} {{ list[-1:-4:-1] }}",
    # operators
    "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }}",
    "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 8 / 4 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] + [2] }} {{ 'a' ~ 1 ~ none ~ 1.5 ~ missing ~ [1] }}",
    "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }}",
    "{{ 1 != 2 }} {{ 2 >= 2 }} {{ 2 <= 1 }} {{ 'a' > 'b' }} {{ none == none }} {{ missing == missing2 }} {{ [1] == [1] }}",
    "{{ 'a' in 'abc' }} {{ 1 in list }} {{ 'k' in nested }} {{ 'z' not in nested }} {{ '' in 'x' }} {{ 9 in [] }}",
    "{{ not yes }} {{ not not yes }} {{ yes and no }} {{ no or 'x' }} {{ '' or 0 or 'last' }} {{ 1 and 2 }} {{ not 1 == 2 }}",
    "{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }} {{ 'a' if no else 'b' if no else 'c' }}",
    "{{ -n }} {{ +n }} {{ - -n }} {{ 3 - -2 }} {{ n - 1 }} {{ n-1 }}", "{{ {'a':1} == {'a':1.0} }}",
    "{{ 1 + '1' }}", "{{ 1 < 'a' }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ missing + 1 }}", "{{ none + 1 }}",
    # filters
    "[{{ text|trim }}] [{{ text|upper|trim }}] [{{ 'ABC'|lower }}] [{{ 'xxaxx'|trim('x') }}] [{{ 'straße'|upper }}]",
    "{{ list|length }} {{ name|length }} {{ words[2]|length }} {{ nested|length }} {{ missing|length }} {{ list|count }}",
    "{{ list|join }} {{ list|join(', ') }} {{ words|join('-') }} {{ [1,'a',none]|join('|') }} {{ 'abc'|join('.') }}",
    "{{ missing|default('d') }} {{ empty|default('d') }}| {{ empty|default('d', true) }} {{ nothing|default('d') }}"
    " {{ no|d('x', boolean=True) }} {{ missing|default }}|",
    "{{ nested|tojson }}", "{{ nested|tojson(indent=2) }}", "{{ quote|tojson }} {{ [1, 2.5, none, true]|tojson }}",
    "{{ {'b': 1, 'a': {'d': [], 'c': {}}}|tojson(sort_keys=true, indent=4) }}", "{{ '<b> & é \u2028'|tojson }}",
    "{{ list|first }} {{ list|last }} {{ 'xyz'|first }} {{ []|first }}| {{ 'abc'|list }} {{ nested|list }}",
    "{{ 'a-b-c'|replace('-', '+') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'ab'|replace('', '.') }}",
    "{{ 'hello wORLD'|capitalize }} {{ text|title }} {{ 5|string + '!' }} {{ 12|length }}", "{{ 5|upper }} {{ none|trim }}",
    "{% for k, v in nested|items %}{{ k }};{% endfor %}", "{{ -1|string }} {{ (-1)|string }} {{ 'a'|upper ~ 'b' }}",
    # tests
    "{{ name is defined }} {{ missing is defined }} {{ missing is not defined }} {{ missing is undefined }}",
    "{{ none is none }} {{ name is string }} {{ n is number }} {{ n is integer }} {{ pi is float }} {{ yes is boolean }}",
    "{{ yes is true }} {{ 1 is true }} {{ no is false }} {{ nested is mapping }} {{ list is iterable }} {{ 3 is iterable }}",
    "{{ list is sequence }} {{ n is sequence }} {{ yes is number }} {{ yes is integer }} {{ name is iterable }}",
    "{{ 3 is odd }} {{ 4 is even }} {{ -3 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 3 is eq 3 }}",
    "{{ 3 is equalto(4) }} {{ 1 is in [1] }} {{ 1 is not in([1]) }} {{ name is defined and n is odd }} {{ 3 is ne 3 }}",
    "{{ 'x' if missing is defined else 'y' }} {{ not name is string }}",
    # for
    "{% for i in list %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in list %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %} {% for i in missing %}x{% else %}none{% endfor %}",
    "{% for u in users if u.on %}{{ loop.index }}{{ u.n }}{{ loop.length }}{% endfor %}",
    "{% for u in users if u.off %}x{% else %}nobody{% endfor %}",
    "{% for k, v in nested.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in nested %}{{ k }};{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4)] %}{{ a + b }} {% endfor %}", "{% for c in words[2] %}{{ c }}.{% endfor %}",
    "{% for i in list %}{% for j in list[:2] %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for i in range(3) %}{{ i }}{% endfor %} {% for i in range(1, 10, 3) %}{{ i }}{% endfor %} {{ range(3, 0, -1)|list }}",
    "{% for i in list %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in none %}x{% endfor %}", "{% for i in 5 %}x{% endfor %}", "{% for a, b in [[1]] %}x{% endfor %}",
    # set and scopes
    "{% set a = 1 %}{{ a }}{% set a = a + 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set x = 0 %}{% for i in list %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(total=0, seen=false) %}{% for i in list %}{% set ns.total = ns.total + i %}{% endfor %}"
    "{{ ns.total }} {{ ns.seen }} {{ ns.other is defined }}",
    "{% if yes %}{% set q = 5 %}{% endif %}{{ q }}", "{% for i in [1] %}{% set q = 5 %}{% endfor %}{{ q }}|",
    "{% set block %}a {{ name }}\n{% endset %}[{{ block }}] {{ block|length }}", "{% set d = dict(a=1, b='x') %}{{ d.a }}{{ d }}",
    "{% set t = 1, 2 %}{{ t[0] }}", "{% for name in list[:1] %}{{ name }}{% endfor %}{{ name }}", "{% set nested.k = 1 %}",
    # if
    "{% if n == 1 %}one{% elif n == 3 %}three{% else %}many{% endif %}", "{% if zero %}a{% elif empty %}b{% elif list %}c{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}", "{% if not list and yes or 1 %}y{% endif %}", "{% if nothing is none %}n{% endif %}",
    # methods
    "[{{ text.strip() }}] [{{ text.lstrip() }}] [{{ text.rstrip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ 'abca'.strip('ac') }}]",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(none, 1) }} {{ 'a,b,c'.split(',', 1) }} {{ ''.split() }}"
    " {{ ''.split(',') }} {{ '  a b  c '.split(None, 1) }} {{ 'x</think>y'.split('</think>')[-1].lstrip('\\n') }}",
    "{{ name.startswith('Wo') }} {{ name.endswith(('x', 'ld')) }} {{ name.startswith('') }} {{ name.upper() }} {{ name.lower() }}",
    "{{ 'aXbX'.replace('X', '-') }} {{ nested.get('k') }} {{ nested.get('z') }} {{ nested.get('z', 5) }} {{ 'aB'.capitalize() }}",
    "{{ nested.keys()|list }} {{ nested.a.values()|list }} {{ name.strip()[0].upper() }}",
    # macros, call and filter blocks
    "{% macro f(a, b='x', c=a ~ b) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(c=3, a=1) }}{{ f() }}",
    "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}{{ f('a')|upper }}{{ f('b') ~ f('c') }}", "{{ f(1) }}{% macro f(x) %}{% endmacro %}",
    "{% macro tree(t) %}{% if t is mapping %}{{ '{' }}{% for k, v in t|dictsort %}{{ k }}:{{ tree(v) }}{{ ',' if not loop.last }}"
    "{% endfor %}{{ '}' }}{% elif t is iterable and t is not string %}[{% for v in t %}{{ tree(v) }};{% endfor %}]"
    "{% else %}{{ t }}{% endif %}{% endmacro %}{{ tree(nested) }}",
    "{% set g = 1 %}{% macro f() %}{{ g }}{{ name }}{% set g = 5 %}{{ g }}{% endmacro %}{{ f() }}{% set g = 2 %}{{ f() }}{{ g }}",
    "{% macro f() %}<{{ caller('y', 2) }}>{% endmacro %}{% call(a, b=1) f() %}{{ a }}{{ b }}{{ name }}{% endcall %}",
    "{% macro f(t) %}{{ t }}{{ caller() if caller else 'none' }}{% endmacro %}{{ f(1) }}{% call f(2) %}!{% endcall %}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f is callable }}{{ range is callable }}{{ name is callable }}{{ f is defined }}",
    "{% filter upper|trim %}  ab {{ name }} {% endfilter %}|", "{% set x | upper | replace('A', '-') %}a{{ name }}{% endset %}{{ x }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}",
    "{% generation %}x{{ name }}{% set y = 1 %}{{ y }}{% endgeneration %}{{ y }}",
    "{% raw %}{{ x }} {% if %}{% endraw %}|", "a\n  {%- raw -%}\n  {{ x }}\n  {%- endraw -%}\n b", "  {% raw %}\n {{\n  {% endraw %}\nx",
    "{% raw %}{% endraw %}x{% rawx %}", "{%raw%}a{%endraw%}b",
    # loops again
    "{% for i in [1, [2, [3, 4]], 5] recursive %}{% if i is iterable %}({{ loop(i) }}{{ loop.depth }}){% else %}{{ i }}{{ loop.depth0 }}"
    "{% endif %}{% endfor %}", "{% for i in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }} {% endfor %}",
    "{% for k, v in nested|dictsort(reverse=true) %}{{ k }}{% endfor %}", "{% for (a, b) in {'x': 1}.items() %}{{ a }}{{ b }}{% endfor %}",
    # sequences
    "{{ users|map(attribute='n')|join(',') }} {{ words|map('upper')|list }} {{ users|map(attribute='q', default='-')|list }}",
    "{{ users|selectattr('on')|list|length }} {{ users|rejectattr('on')|map(attribute='n')|first }} {{ users|selectattr('n', 'equalto', 'y')|list }}",
    "{{ list|select('odd')|list }} {{ list|reject('odd')|list }} {{ [0, 1, '', 'a']|select|list }} {{ list|select('>', 3)|list }}",
    "{{ words|sort }} {{ ['b', 'A', 'c']|sort }} {{ ['b', 'A', 'c']|sort(case_sensitive=true) }} {{ list|sort(reverse=true) }}",
    "{{ users|sort(attribute='n', reverse=true)|map(attribute='n')|join }} {{ [[2, 'a'], [1, 'b'], [1, 'a']]|sort }} {{ [1, 'a']|sort }}",
    "{{ list|sum }} {{ list|max }} {{ list|min }} {{ [1.5, 2]|sum }} {{ users|sum(attribute='x') }} {{ words|max }} {{ []|max }}|",
    "{{ list|reverse|list }} {{ 'abc'|reverse }} {{ ['a', 'A', 'b', 'a']|unique|list }} {{ [1, 1.0, 2]|unique|list }}",
    "{{ list|batch(2)|list }} {{ list|batch(2, 0)|list }} {{ users|groupby('on')|map('first')|list }}",
    "{{ {'b': 1, 'A': 2, 'c': 0}|dictsort }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'A': 2}|dictsort(true) }}",
    "{{ users|join('+', attribute='n') }} {{ nested|attr('k') }}| {{ nested.a|length }}", "{{ [3, 1] + [2] }} {{ [1] * 3 }} {{ (1, 2) + (3,) }}",
    "{{ (1,) }} {{ (1, 2) }} {{ () }} {{ (1, 2) == [1, 2] }} {{ [(1, 2)]|tojson }} {{ (1, 2)[:1] }} {{ nested.items()|list }}",
    # numbers
    "{{ '42'|int + 1 }} {{ '4.9'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ 3.9|int }} {{ 'ff'|int(0, 16) }} {{ none|int }} {{ true|int }}",
    "{{ '1.5'|float }} {{ 'x'|float }} {{ 2|float }} {{ 'x'|float(0.5) }} {{ neg|abs }} {{ -1.5|abs }} {{ (-2.5)|abs }}",
    "{{ 2.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 7|round }} {{ 3.14159|round(3) }}",
    # text
    "{{ lines|indent }}|{{ lines|indent(2, true) }}|{{ 'a\n\nb'|indent(1) }}|{{ 'a\n\nb'|indent(1, blank=true) }}|{{ lines|indent('>') }}",
    "{{ '<a href=\"x\">&\'</a>'|e }} {{ '<'|escape }} {{ 'x'|safe }}", "{{ '%s is %d %% of %.2f'|format('a', 5, 2.5) }} {{ '%s' % 'x' }} {{ '%s %s' % (1, none) }}",
    "{{ 'a-b-c'.rsplit('-', 1) }} {{ 'a-b'.rsplit('-') }} {{ lines.splitlines() }} {{ 'a\r\nb\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }}",
    "{{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'hello'.index('e') }} {{ 'éa'.find('a') }} {{ 'hello'.count('l') }} {{ 'aaa'.count('') }}",
    "{{ 'x'.join(['a', 'b']) }} {{ 'hello world'.title() }} {{ \"it's 3d\".title() }} {{ '{0} {1} {x}'.format(1, 2, x=3) }}",
    "{{ '{} and {}'.format('a', 2) }} {{ '{{}}'.format() }} {{ '{a}'.format(a=name) }}",
    "{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isalpha() }} {{ 'ab'.islower() }} {{ 'AB1'.isupper() }} {{ '1'.islower() }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.y'.removesuffix('.y') }} {{ 'x'.removeprefix('z') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'a'.partition('=') }}",
    "[{{ 'a'.ljust(3) }}] [{{ 'a'.rjust(3, '.') }}] [{{ 'ab'.center(5, '*') }}] [{{ 'a'.center(4) }}] {{ '5'.zfill(3) }} {{ '-5'.zfill(4) }}",
    "{{ list.index(3) }} {{ [1, 2, 1].count(1) }} {{ {'a': 1}.copy() }} {{ list.index(99) }}", "{{ nested.items is defined }} {{ {'items': 1}['items'] }} {{ {'items': 1}.items is mapping }}",
    "{{ nested.get is callable }} {{ name.upper is defined }} {{ name['upper'] is defined }} {{ strftime_now is defined }} {{ nope is defined }}",
    "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }}",
    "{{ 'é\u2028😀<'|tojson(ensure_ascii=true) }} {{ nested|tojson(separators=(',', ':')) }} {{ nested|tojson(indent=2, separators=[', ', '=']) }} {{ '\x7f'|tojson(true) }}",
    "{{ 'Ab' is lower }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ 1 is sameas 1 }} {{ list is sameas list }} {{ 2 is gt 1 }} {{ 2 is le 1 }} {{ 'a' is lt 'b' }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns['a'] }}{{ ns.b is defined }}", "{% set a %}x{% endset %}{% set b = a ~ '!' %}{{ b|length }}",
    # generators: true, of no length, gone once they are read
    "{{ 'a' if list|select('>', 9) else 'b' }} {{ 'a' if list|select('>', 9)|list else 'b' }} {{ 'a' if [1]|unique and [1]|batch(2) and nested|items else 'b' }}",
    "{% set g = list|select('odd') %}{{ g|list }} {{ g|list }} {{ g|first is defined }}", "{% set g = list|map('string') %}{{ g|first }} {{ g|join }} {{ g|join }}",
    "{% set g = list|reject('odd') %}{{ 2 in g }} {{ g|list }} {{ 9 in g }}", "{% for x in list|map('string') %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{{ nothing|map('upper')|list }} {{ nothing|selectattr('a')|list }} {{ zero|reject|list }} {{ no|rejectattr('a')|list }} {{ nope|select|list }}",
    "{{ list|select|length }}", "{{ list|map('string')|tojson }}", "{{ nested|items|tojson }}", "{{ list|select|last }}", "{{ list|reverse|length }}", "{{ list|unique|tojson }}",
    "{{ list|reverse|tojson }}", "{{ list|select|reverse }} {{ list|select|sort }} {{ 'abc'|reverse }}", "{{ nested.items()|tojson }}", "{{ nested.keys()|length }} {{ nested.values()|list }}",
    "{{ nested.keys()[0] is defined }} {{ (list|select)[0] is defined }}", "{{ (list|select)[:1] }}", "{{ nested.keys() + ['a'] }}", "{{ (list|select) + (list|select) }}", "{{ (list|select) == (list|select) }}",
    "{{ list|select is sequence }} {{ list|select is iterable }} {{ nested.keys() is sequence }} {{ nested.keys() is iterable }}", "{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.startswith(['a']) }}",
    # HTML: what is added to it is escaped
    "{{ 'a<'|safe + '<b' }} {{ '<a' + 'b<'|safe }} {{ '<' ~ '<'|safe }} {{ ('<'|safe)|upper + '<' }} {{ '<'|safe * 2 + '<' }}", "{{ ('<a'|e + '&') }} {{ '<'|e|e }} {{ '<'|safe|e }} {{ nothing|e + '<' }}",
    "{{ ('<%s>'|safe) % '<' }} {{ ('<%s>'|safe) % ('<'|safe) }} {{ '%s'|safe|format('<') }} {{ '<{}>'|safe }} {{ '{}' % () }}", "{{ ('<{}>'|safe).format('<') }} {{ ('<'|safe).join(['<', 'b']) }} {{ ['<'|safe, '<']|join('<') }}",
    "{{ ('a<'|safe).replace('a', '<') }} {{ ('a<'|safe)|replace('a', '<') + '<' }} {{ ('a<'|safe).strip('a') + '<' }} {{ ('a<b'|safe).split('<')[0] + '<' }}", "{{ ('a<'|safe)[0] + '<' }} {{ ('ab<'|safe)[1:] + '<' }} {{ ('a'|safe).title() + '<' }} {{ ('a'|safe)|title + '<' }} {{ ('a'|safe)|trim + '<' }}",
    "{% for c in 'a<'|safe %}{{ c + '<' }}{% endfor %} {{ ('a'|safe)|indent + '<' }} {{ ('a'|safe)|reverse + '<' }} {{ ('a'|safe).center(3) + '<' }} {{ ('a'|safe)|string + '<' }} {{ {'a': '<'|safe}|tojson + '<' }}",
    "{% macro m() %}a{% endmacro %}{{ m() + '<' }} {% set b %}a{% endset %}{{ b + '<' }} {{ ('<'|safe) == '<' }} {{ '<' in '<'|safe }} {{ ('a'|safe).capitalize() + '<' }} {{ ('a='|safe).partition('=')[1] + '<' }}",
    # what is not known fails behind a condition only when it is reached
    "{% if no %}{{ n|urlize2 }}{% elif yes %}a{% else %}{{ n is strange }}{% endif %}", "{% if yes %}{{ n|urlize2 }}{% endif %}", "{{ 'a' if yes else n|urlize2 }}", "{{ n|urlize2 if no else 'b' }}", "{{ n|urlize2 if yes else 'b' }}",
    "{% if yes or n is strange %}a{% endif %}", "{% if no %}{% for x in list|urlize2 %}{% endfor %}{% endif %}b", "{% if n is strange 1 %}a{% endif %}", "{% if no %}{{ n is strange 1 }}{% endif %}c",
    # errors that the template raises
    "{{ raise_exception('Roles must alternate') }}", "{% if messages is undefined %}{{ raise_exception('x' ~ n) }}{% endif %}",
]

CHATS = [
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{{- bos_token }}\n{%- if messages[0]['role'] == 'system' -%}\n    {%- set first = messages[0]['content'] + '\\n\\n' -%}\n"
    "    {%- set rest = messages[1:] -%}\n{%- else -%}\n    {%- set first = '' -%}\n    {%- set rest = messages -%}\n"
    "{%- endif -%}\n{%- for message in rest -%}\n    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}\n"
    "        {{ raise_exception(\"Conversation roles must alternate\") }}\n    {%- endif -%}\n"
    "    {%- if (message['role'] == 'assistant') -%}\n        {%- set role = \"model\" -%}\n    {%- else -%}\n"
    "        {%- set role = message['role'] -%}\n    {%- endif -%}\n"
    "    {{ '<start_of_turn>' + role + '\\n' + (first if loop.first else \"\") }}\n"
    "    {%- if message['content'] is string -%}\n        {{ message['content'] | trim }}\n    {%- endif -%}\n"
    "    {{ '<end_of_turn>\\n' }}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n    {{'<start_of_turn>model\\n'}}\n{%- endif -%}\n",
]


def main():
    env = differential.environment()
    with open(DEMO, encoding="utf-8") as f:
        demo = f.read()
    chats = [{**CHAT, "add_generation_prompt": g, "messages": CHAT["messages"][k:]} for g in (True, False) for k in (0, 1)]
    rows = [(demo, v) for v in chats] + [(t, v) for t in CHATS for v in chats] + [(t, DATA) for t in TEMPLATES]
    cases = []
    for template, variables in rows:
        case = {"template": template, "variables": variables if variables is not DATA else "DATA"}
        try:
            case["text"] = env.from_string(template).render(**variables)
        except (TemplateError, TypeError, ZeroDivisionError, ValueError, AttributeError, OverflowError) as error:
            case["error"] = str(error)
        cases.append(case)
    json.dump({"DATA": DATA, "cases": cases}, sys.stdout, ensure_ascii=True, indent=0, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
