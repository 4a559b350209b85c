"""Texts of sasl.jaas.config, for our parser and for Kafka's."""

from pylog.connector.client.jaas import PLAIN_MODULE

READ = [  # (what it shows, the text behind the login module, the options in it)
    ("double quotes", 'required username="alice" password="s3cret";', {"username": "alice", "password": "s3cret"}),
    ("single quotes", "required username='alice' password='s\"3';", {"username": "alice", "password": 's"3'}),
    ("words without quotes", "required username=alice password=s3cret-x_$.y;",
     {"username": "alice", "password": "s3cret-x_$.y"}),
    ("no options", "required;", {}),
    ("spaces, lines", 'required\n  username = "alice"\r\n\tpassword= "p" ;\n', {"username": "alice", "password": "p"}),
    ("no spaces at all", 'required username="alice"password="p";', {"username": "alice", "password": "p"}),
    ("a flag in capitals", 'REQUIRED username="a";', {"username": "a"}),
    ("another flag", 'sufficient username="a";', {"username": "a"}),
    ("escaped quotes", r'required password="a\"b\'c\\d";', {"password": "a\"b'c\\d"}),
    ("letters that stand for signs", r'required password="\a\b\f\n\r\t\v";', {"password": "\a\b\f\n\r\t\v"}),
    ("a letter that stands for itself", r'required password="\d\$\u0041";', {"password": "d$u0041"}),
    ("octal numbers", r'required password="\101\12\3778\4000\08";', {"password": "A\n\xff8 00\x008"}),
    ("signs within quotes", 'required password="a;b=c /*d*/ //e #";', {"password": "a;b=c /*d*/ //e #"}),
    ("comments", 'required /* x="1" */ username="a" // y="2";\n b="p" / z\n;', {"username": "a", "b": "p"}),
    ("a comment of the next line", 'required a="b" /\n c="d"\n;', {"a": "b"}),
    ("letters of the world", 'required username=größe password="日本𝄞";', {"username": "größe", "password": "日本𝄞"}),
    ("a name in quotes", 'required "user name"="a";', {"user name": "a"}),
    ("a name with signs in it", 'required ssl.truststore.location="/x" extension_a-b="c";',
     {"ssl.truststore.location": "/x", "extension_a-b": "c"}),
    ("an option that stands twice", 'required a="1" a="2";', {"a": "2"}),
    ("an empty value", 'required a="";', {"a": ""}),
    ("a quote that ends with its line", 'required a="x\n b="y";', {"a": "x", "b": "y"}),
    ("an escaped end of line", 'required a="x\\\ny";', {"a": "x\ny"}),
]  # fmt: skip

REFUSED = [
    ("nothing", ""),
    ("a comment only", "// s3cret"),
    ("a module only", PLAIN_MODULE),
    ("a flag that is none", f'{PLAIN_MODULE} needed password="s3cret";'),
    ("no flag", f'{PLAIN_MODULE} password="s3cret";'),
    ("no semicolon", f'{PLAIN_MODULE} required password="s3cret"'),
    ("a quote without an end", f'{PLAIN_MODULE} required password="s3cret;'),
    ("a password with a space and no quotes", f"{PLAIN_MODULE} required password=my s3cret;"),
    ("a number without quotes", f"{PLAIN_MODULE} required password=12345;"),
    ("a sign without quotes", f"{PLAIN_MODULE} required password=@s3cret;"),
    ("no equals sign", f'{PLAIN_MODULE} required password "s3cret";'),
    ("no value", f"{PLAIN_MODULE} required password=;"),
    ("a colon for an equals sign", f"{PLAIN_MODULE} required password:s3cret;"),
    ("two modules", f'{PLAIN_MODULE} required password="s3cret"; {PLAIN_MODULE} required;'),
    ("a word behind it", f'{PLAIN_MODULE} required password="s3cret"; s3cret'),
]
