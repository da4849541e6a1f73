/* What models write, and what it is when it is taken apart. */
#ifndef UNIT_CALL_STREAMS_H
#define UNIT_CALL_STREAMS_H

#include <stdbool.h>

static const char CALL_TOOLS[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
                                 "\"parameters\":{\"type\":\"object\",\"properties\":"
                                 "{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"deep\":{"
                                 "\"type\":\"object\",\"properties\":{\"a\":"
                                 "{\"type\":\"array\",\"items\":{\"type\":\"number\"}}}},\"unit\":{\"type\":"
                                 "\"string\",\"enum\":[\"C\",\"F\"]}},"
                                 "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":"
                                 "\"now\",\"parameters\":{\"type\":"
                                 "\"object\",\"properties\":{}}}}]";

/* One more, with parameters that no grammar is made for. */
static const char CALL_MORE_TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"put\",\"parameters\":{\"type\":\"object\","
    "\"properties\":"
    "{\"text\":{\"type\":\"string\"},\"note\":{\"type\":[\"string\",\"null\"]},\"free\":{},\"choice\":"
    "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}}}}}]";

#define DSML                                                                                                 \
    "\xEF\xBD\x9C"                                                                                           \
    "DSML"                                                                                                   \
    "\xEF\xBD\x9C"
#define QUOTE "<|\"|>"

/* events: R reasoning, T text, C a call with its arguments and "." when it was right, X malformed ("X!" when
 * a call had begun); each ended by "|". */
static const struct call_stream {
    const char *dialect;
    bool reasoning;
    const char *text, *events;
} CALL_STREAMS[] = {
    {"plain", false, "Hello <b>world</b>. ", "T Hello <b>world</b>. |"},
    {"plain", false, " x", "T  x|"},
    {"plain", false, "<think>\nhm\n</think>\n\nYes.\n", "R hm|T Yes.\n|"},
    {"plain", true, "hm <not>\n</think>\n\nYes <thin", "R hm <not>|T Yes <thin|"},
    {"plain", true, "never closed", "R never closed|"},
    {"plain", false, "<tool_call>x</tool_call>", "T <tool_call>x</tool_call>|"},
    {"tagged", true,
     "think\n</think>\n\nLet me see.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n"
     "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     "R think|T Let me see.|C get_weather {\"city\":\"Paris\",\"days\":3}.|"},
    {"tagged", false,
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a}<\"}}\n</tool_call>\n<tool_call>"
     "{\"name\":\"now\",\"arguments\":{}}</tool_call>\n",
     "C get_weather {\"city\":\"a}<\"}.|C now {}.|"},
    {"tagged", false,
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n<arg_key>deep</arg_key>"
     "<arg_value>{\"a\": [1]}</arg_value></tool_call>",
     "C get_weather {\"city\":\"12\",\"deep\":{\"a\":[1]}}.|"},
    {"tagged", true, "I call.<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>",
     "R I call.|C now {}.|"},
    {"tagged", false,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nline 1\n\nline 2 "
     "</par>\n</parameter>\n</function>\n"
     "</tool_call>",
     "C get_weather {\"city\":\"line 1\\n\\nline 2 </par>\"}.|"},
    {"tagged", false, "a <tool_call>nonsense {</tool_call> b", "T a|X nonsense {|T b|"},
    {"tagged", false, "<tool_call>{\"name\":\"unknown\",\"arguments\":{}}</tool_call>",
     "X {\"name\":\"unknown\",\"arguments\":{}}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":1,\"a\":2}}</tool_call>",
     "C now {\"a\":1,\"a\":2}|X! {\"name\":\"now\",\"arguments\":{\"a\":1,\"a\":2}}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\",\"arguments\":[]}</tool_call>",
     "C now |X! {\"name\":\"now\",\"arguments\":[]}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\"", "C now |X! {\"name\":\"now\"|"},
    {"gemma4", false,
     "<|channel>thought\nhm hm\n<channel|>Sure.\n<|tool_call>call:get_weather{city:" QUOTE "Pa{ris}" QUOTE
     ",days:3,deep:{a:[1,2.5],b:true},unit:" QUOTE "C" QUOTE "}<tool_call|><|tool_response>",
     "R hm hm|T Sure.|C get_weather "
     "{\"city\":\"Pa{ris}\",\"days\":3,\"deep\":{\"a\":[1,2.5],\"b\":true},\"unit\":\"C\"}.|"},
    {"gemma4", false, "<|channel>thought\n<channel|>Hi", "T Hi|"},
    {"gemma4", false, "<|channel>final\nHi<channel|>", "T Hi|"},
    {"gemma4", false, "<|tool_call>call:now{}<tool_call|><|tool_call>call:now{}<tool_call|>",
     "C now {}.|C now {}.|"},
    {"gemma4", false, "<|tool_call>call:now{x}<tool_call|>", "C now {\"x\":|X! call:now{x}|"},
    {"gemma4", false, "<|tool_call>call:now{a:1,a:2}<tool_call|>",
     "C now {\"a\":1,\"a\":2}|X! call:now{a:1,a:2}|"},
    {"deepseek", true,
     "why</think>Text\n\n<" DSML "tool_calls>\n<" DSML "invoke name=\"get_weather\">\n<" DSML
     "parameter name=\"city\" string=\"true\">a\nb</" DSML "parameter>\n<" DSML
     "parameter name=\"days\" string=\"false\">4</" DSML "parameter>\n</" DSML "invoke>\n<" DSML
     "invoke name=\"now\">\n</" DSML "invoke>\n</" DSML "tool_calls>",
     "R why|T Text|C get_weather {\"city\":\"a\\nb\",\"days\":4}.|C now {}.|"},
    {"deepseek", false, "<" DSML "tool_calls>\n<" DSML "invoke name=\"now\">\n</" DSML "tool_calls>",
     "C now {|X! \n<" DSML "invoke name=\"now\">\n|"},
    {"inkling", false,
     "<|content_thinking|>deep<|end_message|><|message_model|><|content_text|>Well.<|end_message|>"
     "<|message_model|><|content_invoke_tool_json|>{\"name\":\"now\",\"args\":{}}<|end_message|>",
     "R deep|T Well.|C now {}.|"},
    /* what a message is for */
    {"inkling", false,
     "now<|content_invoke_tool_json|>{\"name\":\"now\",\"args\":{}}<|end_message|><|message_model|>get_"
     "weather"
     "<|content_invoke_tool_json|>{\"name\":\"get_weather\",\"args\":{\"city\":\"x\"}}<|end_message|>",
     "C now {}.|C get_weather {\"city\":\"x\"}.|"},
    {"inkling", true,
     "deep<|end_message|><|message_model|>now<|content_invoke_tool_json|>{\"name\":\"now\","
     "\"args\":{}}<|end_message|>",
     "R deep|C now {}.|"},
    {"inkling", false, "<|content_text|>now<|end_message|>", "T now|"},
    {"inkling", false, "<|message_model|>now then<|content_text|>", "T now then|"},
    {"inkling", false, "now", "T now|"},
    /* JSON: order, layout, escapes, what is no part of a call */
    {"tagged", false, "<tool_call>{\"arguments\": {\"city\": \"x\"}, \"name\": \"get_weather\"}</tool_call>",
     "C get_weather {\"city\":\"x\"}.|"},
    {"tagged", false,
     "<tool_call>{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": \\\"x \\\\\\\" "
     "y\\\"}\"}</tool_call>",
     "C get_weather {\"city\":\"x \\\" y\"}.|"},
    {"tagged", false,
     "<tool_call>{\"id\" : 5.5 , \"name\":\"now\", \"arguments\":{ },\"x\":[{\"y\":\"}]\"}]}</tool_call>",
     "C now {}.|"},
    {"tagged", false,
     "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"a  \\\\\",\"days\": -1.5e3 ,\"deep\": "
     "{\"a\" : [ 1 , 2 ]},\n\"unit\":\"\\u00e9\xC3\xA9\\\"\"}}</tool_call>",
     "C get_weather {\"city\":\"a  "
     "\\\\\",\"days\":-1.5e3,\"deep\":{\"a\":[1,2]},\"unit\":\"\\u00e9\xC3\xA9\\\"\"}.|"},
    {"tagged", false,
     "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"</tool_call>\"}}</tool_call> ok",
     "C get_weather {\"city\":\"</tool_call>\"}.|T ok|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":tr ue}}</tool_call>",
     "C now {\"a\":true}|X! {\"name\":\"now\",\"arguments\":{\"a\":tr ue}}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\",\"arguments\":{},\"name\":\"put\"}</tool_call>",
     "C now {}|X! {\"name\":\"now\",\"arguments\":{},\"name\":\"put\"}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\",\"arguments\":{},\"n\\u0061me\":\"put\"}</tool_call>",
     "C now {}|X! {\"name\":\"now\",\"arguments\":{},\"n\\u0061me\":\"put\"}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\",\"arguments\":{}} x</tool_call>",
     "C now {}|X! {\"name\":\"now\",\"arguments\":{}} x|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":\"\xFF\"}}</tool_call>",
     "C now {\"a\":\"\xFF\"}|X! {\"name\":\"now\",\"arguments\":{\"a\":\"\xFF\"}}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\"}</tool_call>", "C now |X! {\"name\":\"now\"}|"},
    {"tagged", false, "<tool_call>{\"name\":1,\"arguments\":{}}</tool_call>",
     "X {\"name\":1,\"arguments\":{}}|"},
    {"tagged", false,
     "One.\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>\n\nTwo.\n"
     "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>{\"name\":\"now\",\"argum",
     "T One.|C now {}.|T Two.|C now {}.|C now |X! {\"name\":\"now\",\"argum|"},
    /* elements: types, layout, marks inside values */
    {"tagged", false,
     "<tool_call><function=put>\n<parameter=text>\n\tsay \"hi\"\\\x01 "
     "\xE2\x9C\x93\n\n</parameter>\n<parameter="
     "note>\nnull\n</parameter>\n<parameter=free>\n12a\n</parameter>\n<parameter=more>\n\"q\"\n</parameter>\n"
     "<parameter=choice>\n7\n</parameter>\n</function></tool_call>",
     "C put {\"text\":\"\\tsay \\\"hi\\\"\\\\\\u0001 "
     "\xE2\x9C\x93\\n\",\"note\":null,\"free\":\"12a\",\"more\":\"\\\"q\\\"\","
     "\"choice\":\"7\"}.|"},
    {"tagged", false,
     "<tool_call><function=put><parameter=text></parameter><parameter=note>\n\n</parameter><parameter=free>"
     "[1, {\"a\": null}]</parameter></function></tool_call>",
     "C put {\"text\":\"\",\"note\":\"\",\"free\":[1,{\"a\":null}]}.|"},
    {"tagged", false,
     "<tool_call><function=put><parameter=text>a</tool_call>b</function>c</param</parameter></function>"
     "</tool_call>d",
     "C put {\"text\":\"a</tool_call>b</function>c</param\"}.|T d|"},
    {"tagged", false, "<tool_call><function=now>\n<parameter=a>1</function>\n</tool_call> tail",
     "C now {\"a\":|X! <function=now>\n<parameter=a>1</function>\n</tool_call> tail|"},
    {"tagged", false, "<tool_call><function=now></function>x</tool_call>",
     "C now {}|X! <function=now></function>x|"},
    {"tagged", false, "<tool_call>now</tool_call><tool_call> now \n</tool_call>", "C now {}.|C now {}.|"},
    {"tagged", false,
     "<tool_call>put\n<arg_key>text</arg_key>\n<arg_value>\n</tool_call>\n</arg_value><arg_key>free</arg_key>"
     "<arg_value> 3</arg_value>\n</tool_call>",
     "C put {\"text\":\"\\n</tool_call>\\n\",\"free\":3}.|"},
    {"tagged", false, "<tool_call>now<arg_key>a</arg_key>5</tool_call>",
     "C now {\"a\":|X! now<arg_key>a</arg_key>5|"},
    {"deepseek", false,
     "<" DSML "tool_calls><" DSML "invoke name=\"now\"></" DSML "invoke><" DSML "invoke name=\"put\"><" DSML
     "parameter name=\"text\" string=\"true\">x</" DSML "parameter><" DSML
     "parameter name=\"free\" string=\"false\">{]</" DSML "parameter></" DSML "invoke></" DSML "tool_calls>.",
     "C now {}.|C put {\"text\":\"x\",\"free\":|X! <" DSML "invoke name=\"put\"><" DSML
     "parameter name=\"text\" string=\"true\">x</" DSML "parameter><" DSML
     "parameter name=\"free\" string=\"false\">{]</" DSML "parameter></" DSML "invoke>|T .|"},
    {"deepseek", false,
     "<" DSML "tool_calls>\n<" DSML "invoke name=\"put\">\n<" DSML "parameter name=\"text\" string=\"true\">"
     "</\xEF\xBD\x9C</\xEF\xBD\x9D</" DSML "tool_calls></" DSML "parameter>\n<" DSML
     "parameter name=\"free\" string=\"false\">{\"a\": [1, true]}</" DSML "parameter>\n</" DSML
     "invoke>\n</" DSML "tool_calls>",
     "C put {\"text\":\"</\xEF\xBD\x9C</\xEF\xBD\x9D</" DSML "tool_calls>\",\"free\":{\"a\":[1,true]}}.|"},
    /* Gemma's values */
    {"gemma4", false,
     "<|tool_call>call:put{text:" QUOTE "<tool_call|>\n<|\"x" QUOTE ", " QUOTE "free" QUOTE
     " : [ ] ,note:null,"
     "more:{ } ,choice:[[-1,2.5e3],{a.b:" QUOTE QUOTE "},false]}<tool_call|>",
     "C put "
     "{\"text\":\"<tool_call|>\\n<|\\\"x\",\"free\":[],\"note\":null,\"more\":{},\"choice\":[[-1,2.5e3],{"
     "\"a.b\":\"\"},false]}.|"},
    {"gemma4", false, "<|tool_call>call:put{free:[1,]}<tool_call|>",
     "C put {\"free\":[1,|X! call:put{free:[1,]}|"},
    {"gemma4", false, "<|tool_call>call:put{free:word}<tool_call|>",
     "C put {\"free\":|X! call:put{free:word}|"},
    {"gemma4", false, "<|tool_call>call:now{} <tool_call|><|tool_call>call:other{}<tool_call|>",
     "C now {}.|X call:other{}|"},
    {"inkling", false,
     "<|content_invoke_tool_json|>{\"name\":\"put\",\"args\":{\"text\":\"<|end_message|>\"}}<|end_message|>",
     "C put {\"text\":\"<|end_message|>\"}.|"},
};

enum { N_CALL_STREAMS = sizeof CALL_STREAMS / sizeof *CALL_STREAMS };

#endif
