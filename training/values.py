"""Make the values of parameters: how a person writes one in a request, and the JSON value that a call needs."""

from __future__ import annotations

import datetime
import random
import re
from dataclasses import dataclass
from typing import Any

from clock import MINUTES, spell_date, spell_time
from num2words import num2words

LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "cs")

WORDS = {
    "city": "London|Paris|Berlin|Madrid|Rome|Vienna|Prague|Oslo|Tokyo|Sydney|Toronto|Chicago|Boston|Lisbon|Dublin|Athens|Cairo|Mumbai|Seoul|Austin|Denver|Munich|Hamburg|Lyon|Krakow|Zurich|Geneva|Helsinki|Warsaw|Budapest|New York|San Francisco|Cape Town|Buenos Aires|Hong Kong|Los Angeles|Brno|Porto|Turin|Seattle|Miami|Naples|Milan|Antwerp|Ghent|Bergen|Riga|Tallinn|Bilbao|Valencia|Leipzig|Cologne|Graz|Split|Izmir|Nairobi|Lagos|Lima|Bogotá|Santiago|Osaka|Kyoto|Hanoi|Perth|Auckland|Ottawa|Vancouver|Montreal|Dallas|Portland|Rio de Janeiro|São Paulo|Mexico City|Tel Aviv|Kuala Lumpur|Singapore",
    "person": "Anna|Ben|Carla|David|Eva|Frank|Grace|Henry|Ines|Jack|Karim|Lucy|Mark|Nina|Oscar|Paula|Sam|Tina|Victor|Zoe|Marta|Tom|Maria Lopez|John Smith|Eva Novak|Peter Berg|Priya|Chen Wei|Yuki|Omar|mom|dad|my boss|Mr. Hill|Dr. Weber|aunt Rosa",
    "place": "the station|the airport|Main Street 5|the library|the old town|city hall|Park Avenue 12|the museum|home|work|the beach|Hauptbahnhof|Central Park|the university",
    "goods": "milk|bread|apples|eggs|bananas|lemons|batteries|coffee|tea|sugar|butter|cheese|rice|soap|light bulbs|dog food|printer paper|shoes|lamps|mugs|chairs|books|pens|bags|socks|teas|flowers|candles|notebooks|green tea|olive oil|tomatoes|pasta",
    "food": "pizza|pasta|sushi|curry|tacos|ramen|salad|salmon|chicken|tofu|lentils|pumpkin|potatoes|mushrooms|rice|an apple|a banana|chocolate|lasagna|goulash",
    "currency": "USD|EUR|GBP|JPY|CZK|CHF|PLN|SEK|NOK|CAD|AUD|INR|CNY|HUF",
    "ticker": "AAPL|MSFT|TSLA|NVDA|SAP|GOOG|AMZN|META|IBM|INTC|NFLX|ORCL",
    "lang": "German|French|Spanish|Czech|Italian|Portuguese|Dutch|Japanese|Polish|Latin|Swedish",
    "song": "jazz|some Mozart|Bohemian Rhapsody|lo-fi beats|the Beatles|classical piano|my workout playlist|Yesterday|rock from the 80s|Nina Simone|techno|Vivaldi",
    "songs": "Yesterday, Imagine|Clocks, Yellow|Hello, Someone Like You",
    "topic": "hiking boots|python tutorials|the election|cheap hotels in Rome|how to boil eggs|climate change|football|electric cars|quantum computers|inflation|the Mars mission|gardening|chess openings|solar power|best headphones 2026",
    "famous": "Marie Curie|Albert Einstein|the Eiffel Tower|Leonardo da Vinci|Cleopatra|the Berlin Wall|Mozart|Nikola Tesla|black holes|Frida Kahlo|Ada Lovelace|the Moon landing",
    "restaurant": "Luigi's|The Oak|Sakura|Chez Marie|Blue Door|U Fleků|La Tasca|Golden Dragon|Trattoria Roma|Nordsee",
    "team": "Arsenal|Real Madrid|Sparta Praha|Bayern|Ajax|the Lakers|Juventus|Benfica|Liverpool|the Yankees",
    "movie": "Dune|Casablanca|Amélie|Alien|Titanic|Up|Psycho|Inception|The Matrix|Jaws|Coco",
    "term": "serendipity|ubiquitous|entropy|photosynthesis|nostalgia|ephemeral|algorithm|gratitude|zeitgeist|inertia",
    "phrase": "good morning|where is the station|thank you|one beer please|I love this place|the food was terrible|hello world|see you tomorrow|this is the best day ever|it was okay|How are you?|never again|madam|the quick brown fox",
    "problem": "the printer is broken|I cannot log in|the page is slow|my screen is black|the app crashes on start|emails are not delivered|the VPN drops|wrong total on the invoice|the door sensor fails",
    "meeting": "lunch with Eva|team meeting|dentist|budget review|stand-up|retro|yoga|parents' evening|the kickoff|project sync|interview with Tom|board meeting",
    "timername": "pasta|eggs|tea|laundry|pizza|cake|break",
    "service": "billing|auth|search|checkout|payments|nginx|redis|the mail server|gateway|worker|api|scheduler",
    "logword": "timeout|error|500|refused|denied|panic|exception",
    "host": "example.com|db-1.internal|mail.test.org|192.168.1.10|web-2|cache.local|api.shop.io",
    "company": "Acme|Globex|Initech|Umbrella|Hooli|Stark Ltd",
    "projectname": "Apollo|Atlas|Orion|Delta|Nova|Phoenix",
    "playlistname": "Focus|Party|Sleep|Road trip|Sunday morning|Gym",
    "branchname": "fix-login|feature/search|dev|release-2.1|hotfix|docs-update",
    "commitmsg": "fix typo|add tests|update readme|remove dead code|bump version|handle empty input",
    "folder": "Downloads|Desktop|Documents|Music|archive|projects|Pictures|src|backup|invoices",
    "path": "notes.md|report.txt|src/main.py|config.yaml|/etc/hosts|data/sales.csv|todo.txt|docs/index.html|C:\\temp\\log.txt|README.md",
    "imagefile": "cat.png|beach.jpg|logo.svg|img_2031.jpg|banner.webp|photo-7.png",
    "filequery": "invoice|budget|resume|contract|recipe|photo.jpg|report|notes.md|config.yaml|tax pdfs|*.csv|holiday pictures|passport scan|meeting notes|*.pdf",
    "meetingroom": "room Berlin|the big room|room 3|Everest|the aquarium|room A",
    "purpose": "the rent|dinner|the tickets|the gift|July|the concert",
    "petname": "Rex|Mimi|Bubbles|Luna|Bella|Max",
    "usstate": "CA|TX|New York|Florida|Ohio|Washington",
    "chem": "H2O|CO2|C6H12O6|NaCl|CH4|NH3|H2SO4|C2H5OH",
    "func": "x^2|3x^2 + 2x - 1|sin(x)|x**3|e^x|2*x+1|ln(x)|x^2 + 4",
    "sql": "SELECT count(*) FROM orders|select * from users|SELECT name FROM customers WHERE city = 'Brno'|DELETE FROM logs|SELECT avg(price) FROM products",
    "song_title": "Yesterday|Imagine|Clocks|Yellow|Hello|Creep|Zombie|Riders on the Storm|Hotel California|Wonderwall|Africa|Billie Jean|Let It Be|Nothing Else Matters|Purple Rain|Hey Jude|Smells Like Teen Spirit|Dancing Queen|Take On Me|Bohemian Rhapsody|Ain't No Sunshine|Stairway to Heaven|Rolling in the Deep|99 Luftballons|La Vie en Rose|Sweet Dreams|Under the Bridge|With or Without You|Back to Black|Viva la Vida|Fast Car|The Sound of Silence|Waterloo|Proud Mary|Blue Monday",
    "artist": "Queen|Adele|Toto|Metallica|ABBA|Coldplay|Nirvana|Prince|Nina Simone|Leonard Cohen|the Doors|Edith Piaf|Nena|Amy Winehouse|Daft Punk|Radiohead|Bob Dylan|U2|Johnny Cash|Rosalía|Karel Gott|Eros Ramazzotti",
    "ingredient": "eggs|rice|tomatoes|potatoes|mushrooms|chicken|cheese|pasta|lentils|spinach|salmon|onions|beans|tofu|carrots|zucchini|bacon|cream",
    "doctor": "Dr. Weber|Dr. Novak|Dr. Silva|Dr. Jones|Dr. Rossi|Dr. Chen|Dr. Patel|doctor Martin|Dr. Bakker|Dr. Horáková",
    "booktitle": "Dune|The Trial|Emma|Momo|The Hobbit|Animal Farm|Jane Eyre|War and Peace|The Name of the Rose|Sapiens|Don Quixote|Brave New World|The Little Prince|Middlemarch|Solaris|Blindness|The Good Soldier Svejk|Pippi Longstocking",
    "url": "https://example.com|https://news.site/today|http://localhost:8080/health|https://docs.python.org/3/|https://shop.io/item?id=7|www.example.org/a/b",
}
ACTIONS = {
    "en": "buy milk|call the bank|water the plants|pay the rent|send the invoice|book the dentist|take out the trash|renew my passport|prepare slides|walk the dog|email the landlord|fix the bike|order pizza|back up the laptop|visit grandma|clean the kitchen|write the report|call mom|pick up the kids|return the library book|check the oil|pack a raincoat|buy a birthday present for Eva",
    "de": "Milch kaufen|die Bank anrufen|Blumen gießen|Miete zahlen|Rechnung schicken|Müll rausbringen|Mama anrufen|Bericht schreiben",
    "fr": "acheter du lait|appeler la banque|arroser les plantes|payer le loyer|sortir les poubelles|appeler maman|finir le rapport",
    "es": "comprar leche|llamar al banco|regar las plantas|pagar el alquiler|sacar la basura|llamar a mamá|terminar el informe",
    "it": "comprare il latte|chiamare la banca|pagare l'affitto|portare fuori il cane|finire la relazione",
    "pt": "comprar leite|ligar para o banco|pagar o aluguel|levar o lixo|terminar o relatório",
    "nl": "melk kopen|de bank bellen|de huur betalen|de planten water geven|het rapport afmaken",
    "cs": "koupit mléko|zavolat do banky|zalít kytky|zaplatit nájem|vynést koš|zavolat mámě|dopsat zprávu",
}
SAYINGS = {
    "en": "I'm late|see you tomorrow|happy birthday|thanks for dinner|the meeting moved to 3|I'm on my way|call me back|the package arrived|we won|dinner is ready|please bring bread|hello world",
    "de": "ich komme später|bis morgen|alles Gute zum Geburtstag|danke|bin unterwegs",
    "fr": "je suis en retard|à demain|bon anniversaire|merci|j'arrive",
    "es": "llego tarde|hasta mañana|feliz cumpleaños|gracias|ya voy",
    "it": "sono in ritardo|a domani|buon compleanno|grazie",
    "pt": "vou chegar tarde|até amanhã|feliz aniversário|obrigado",
    "nl": "ik ben te laat|tot morgen|gefeliciteerd|bedankt",
    "cs": "přijdu pozdě|uvidíme se zítra|všechno nejlepší|díky|už jdu",
}
ROOMS = {
    "en": "kitchen|bedroom|hall|hallway|office|bathroom|garage|living room|cellar|attic|nursery|dining room|garden|guest room|corridor|study|porch|pantry|basement|laundry room",
    "de": "Küche|Schlafzimmer|Flur|Büro|Bad|Garage|Wohnzimmer|Keller|Kinderzimmer|Esszimmer|Garten|Gästezimmer",
    "fr": "cuisine|chambre|couloir|bureau|salle de bain|garage|salon|cave|grenier|jardin",
    "es": "cocina|dormitorio|pasillo|oficina|baño|garaje|salón|sótano|jardín",
    "it": "cucina|camera|corridoio|ufficio|bagno|garage|soggiorno|cantina|giardino",
    "pt": "cozinha|quarto|corredor|escritório|banheiro|garagem|sala|jardim",
    "nl": "keuken|slaapkamer|gang|kantoor|badkamer|garage|woonkamer|kelder|tuin",
    "cs": "kuchyň|ložnice|chodba|kancelář|koupelna|garáž|obývák|sklep|zahrada",
}
SERVICES = "billing auth search checkout payments gateway reports mailer frontend orders catalog users sessions invoices inventory shipping portal metrics alerts importer exporter crawler images video chat profile ledger pricing recommender uploads archive calendar maps notifier scheduler web redis kafka nginx"
UNITS = (
    ("miles", "km"), ("kg", "pounds"), ("feet", "meters"), ("celsius", "fahrenheit"), ("liters", "gallons"),
    ("inches", "cm"), ("hours", "minutes"), ("ounces", "grams"), ("acres", "hectares"), ("km/h", "mph"),
)  # fmt: skip
ORDINALS = {
    "en": "first second third fourth fifth sixth seventh eighth ninth tenth".split(),
    "de": "ersten zweiten dritten vierten fünften sechsten siebten achten neunten zehnten".split(),
}
AND = {"en": "and", "de": "und", "fr": "et", "es": "y", "it": "e", "pt": "e", "nl": "en", "cs": "a"}


def _split_kind(text: str) -> list[str]:
    """Split the words of a kind; a backslash before a space keeps words together."""
    return [part.replace("\\ ", " ") for part in re.split(r"(?<!\\) ", text) if part]


@dataclass(frozen=True)
class Value:
    """A value as it stands in a request, and in the arguments."""

    spoken: str
    json: Any


class ValueMaker:
    """Source of random values, with its own seed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def make(self, kind: str, language: str = "en") -> Value:
        """Return a value of a kind such as `city`, `int 1 30`, `enum low high` or `date`."""
        name, _, rest = kind.partition(" ")
        if name == "of":
            return self._same(self.rng.choice(rest.split(",")))
        if name == "words":
            names = self.rng.sample(rest.split(","), self.rng.choice((1, 2, 2, 3)))
            return Value(f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0], names)
        maker = getattr(self, f"make_{name}", None)
        if maker is not None:
            return maker(_split_kind(rest), language)
        if name in WORDS:
            return self._same(self.rng.choice(WORDS[name].split("|")))
        raise ValueError(f"unknown kind of value: {kind!r}")

    def schema(self, kind: str) -> dict[str, Any]:
        """Return the JSON Schema of a kind of value."""
        name, _, rest = kind.partition(" ")
        if name == "enum":
            return {"type": "string", "enum": rest.split()}
        if name == "alias":
            return {"type": "string", "enum": [part.partition("=")[0] for part in _split_kind(rest)]}
        if name in ("words",):
            return {"type": "array", "items": {"type": "string", "enum": rest.split(",")}}
        plain = {"int": "integer", "num": "number", "bool": "boolean", "halves": "number"}
        if name == "choice":
            return {"type": "integer" if all(part.isdigit() for part in rest.split()) else "number"}
        if name in plain:
            return {"type": plain[name]}
        if name in ("ints", "pair"):
            return {"type": "array", "items": {"type": self.rng.choice(("integer", "number"))}}
        if name == "matrix":
            return {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
        if name in ("people", "songs", "songtitles", "foods"):
            return {"type": "array", "items": {"type": "string"}}
        if name in ("date", "time") and self.rng.random() < 0.4:
            return {"type": "string", "format": name}
        return {"type": "string"}

    def _same(self, text: str) -> Value:
        return Value(text, text)

    def make_int(self, bounds: list[str], language: str) -> Value:
        low, high = int(bounds[0]), int(bounds[1])
        number = (
            self.rng.randint(low, min(high, 12))
            if self.rng.random() < 0.35 and low <= 12
            else self.rng.randint(low, high)
        )
        return Value(self._spell(number, language), number)

    def _spell(self, number: int, language: str) -> str:
        # People write small and round numbers as words.
        is_round = number % 10 == 0 and number <= 200 or number % 50 == 0 and number <= 1000
        if 2 <= number and self.rng.random() < (0.3 if number <= 20 or is_round else 0.15 if number < 100 else 0):
            if number == 12 and language == "en" and self.rng.random() < 0.3:
                return "a dozen"
            words = str(num2words(number, lang=language))
            return words if self.rng.random() < 0.7 else words.replace("-", " ")
        if number >= 1000 and language == "en" and self.rng.random() < 0.3:
            return f"{number:,}"
        return str(number)

    def make_num(self, bounds: list[str], language: str) -> Value:
        low, high = float(bounds[0]), float(bounds[1])
        if self.rng.random() < 0.6:
            return self.make_int([str(int(low)), str(int(high))], language)
        number = round(self.rng.uniform(low, high), self.rng.choice((1, 2)))
        number = int(number) if number == int(number) else number
        return self._same_number(number)

    def _same_number(self, number: float) -> Value:
        return Value(repr(number), number)

    def make_halves(self, bounds: list[str], language: str) -> Value:
        """Return a number that may end with a half, in digits or words."""
        whole = self.make_int(bounds, language)
        if self.rng.random() < 0.7:
            return whole
        number = whole.json + 0.5
        if language == "en" and self.rng.random() < 0.6:
            return Value(f"{self._spell(whole.json, language)} and a half", number)
        return Value(
            str(number) if language == "en" or self.rng.random() < 0.3 else f"{number}".replace(".", ","), number
        )

    def make_alias(self, parts: list[str], language: str) -> Value:
        """Return a value with one of the words that people use for it; `de:Küche` is a word of a language."""
        value, _, text = self.rng.choice(parts).partition("=")
        words = [(prefix, word) for prefix, _, word in (one.rpartition(":") for one in text.split(","))]
        own = [word for prefix, word in words if prefix == language]
        return Value(self.rng.choice(own or [value, *(word for prefix, word in words if not prefix)]), value)

    def make_room(self, parts: list[str], language: str) -> Value:
        del parts
        return self._same(self.rng.choice(ROOMS[language].split("|")))

    def make_flight(self, parts: list[str], language: str) -> Value:
        del parts, language
        letters = self.rng.choice("LH BA AF KL OK FR U2 UA DL IB TP LX OS SK AZ EK QR W6 TK".split())
        return self._same(f"{letters}{self.rng.choice(('', '', '', ' '))}{self.rng.randint(12, 9899)}")

    def make_svc(self, parts: list[str], language: str) -> Value:
        """Return the name of a service, such as `orders-api`."""
        del parts, language
        first, last = (
            self.rng.choice(SERVICES.split()),
            self.rng.choice(("", "", "", "-api", "-worker", "-db", "-service", "_web", "-v2", "2")),
        )
        return self._same(first + last)

    def make_machine(self, parts: list[str], language: str) -> Value:
        del parts, language
        first = self.rng.choice(
            "web db build cache node worker nas mail backup gpu prod edge ci proxy lab host".split()
        )
        return self._same(
            f"{first}{self.rng.choice(('', '-', '0'))}{self.rng.randint(1, 40)}{self.rng.choice(('', '', '.internal', '.local'))}"
        )

    def make_reponame(self, parts: list[str], language: str) -> Value:
        del parts, language
        first = self.rng.choice(SERVICES.split())
        return self._same(first + self.rng.choice(("", "", "-ui", "-lib", "-server", "-client", "-docs", "-app")))

    def make_isbn(self, parts: list[str], language: str) -> Value:
        del parts, language
        return self._same(
            f"{self.rng.choice(('978', '978', '979'))}{self.rng.choice(('', '', '-'))}{self.rng.randint(10**9, 10**10 - 1)}"
        )

    def make_choice(self, parts: list[str], language: str) -> Value:
        del language
        part = self.rng.choice(parts)
        number = float(part)
        spoken = part
        if 0 < number < 1 and self.rng.random() < 0.5:
            spoken = f"{number * 100:g}%"
        return Value(spoken, int(number) if number == int(number) and abs(number) < 1e6 else number)

    def make_enum(self, parts: list[str], language: str) -> Value:
        del language
        return self._same(self.rng.choice(parts))

    make_word = make_enum

    def make_bool(self, parts: list[str], language: str) -> Value:
        if language == "de" and parts == ["on", "off"]:
            parts = ["an", "aus"]
        yes = self.rng.random() < 0.5
        return Value(parts[0 if yes else 1], yes)

    def make_date(self, parts: list[str], language: str) -> Value:
        del parts
        day = datetime.date(2025, 1, 1) + datetime.timedelta(self.rng.randint(0, 1100))
        iso = day.isoformat()
        if self.rng.random() < 0.5:
            return self._same(iso)
        forms = [text for key, text in spell_date(day).items() if key.startswith(language)]
        return Value(self.rng.choice(forms), iso)

    def make_time(self, parts: list[str], language: str) -> Value:
        del parts
        hour, minute = self.rng.randint(6, 22), self.rng.choice(MINUTES)
        text = f"{hour:02}:{minute:02}"
        forms = [text for key, text in spell_time(hour, minute).items() if key.startswith(language)]
        return Value(self.rng.choice(forms), text) if forms and self.rng.random() < 0.5 else self._same(text)

    def make_expr(self, parts: list[str], language: str) -> Value:
        del parts
        pick = self.rng.randint
        a, b, c = pick(1, 99), pick(1, 99), pick(1, 20)
        if language == "en" and self.rng.random() < 0.25:
            spoken, written = self.rng.choice(
                (
                    (f"{a} times {b}", f"{a}*{b}"), (f"{a} plus {b}", f"{a}+{b}"), (f"{a} minus {b}", f"{a}-{b}"),
                    (f"{a} divided by {c}", f"{a}/{c}"), (f"{a}% of {b}", f"{a}/100*{b}"), (f"{a} percent of {b}", f"{a}/100*{b}"),
                    (f"{c} squared", f"{c}**2"),
                )
            )  # fmt: skip
            return Value(spoken, written)
        forms = ("{a}+{b}", "{a} + {b}", "{a}*{b}", "{a} * {b}", "{a}*{b}+{c}", "({a}+{b})*{c}", "{a}/{c}", "{a}-{b}", "{a}+{b}+{c}", "{a} - {b} * {c}", "{a} * ({b} + {c})", "{a}.5 + {b}.25", "({a} - {b}) / {c}", "2^{c}")  # fmt: skip
        return self._same(self.rng.choice(forms).format(a=a, b=b, c=c))

    def make_action(self, parts: list[str], language: str) -> Value:
        del parts
        return self._same(self.rng.choice(ACTIONS[language].split("|")))

    def make_saying(self, parts: list[str], language: str) -> Value:
        del parts
        return self._same(self.rng.choice(SAYINGS[language].split("|")))

    def make_sku(self, parts: list[str], language: str) -> Value:
        del parts, language
        letters = "".join(self.rng.choice("ABCDEFGHIKLMNOPRSTUVWXZ") for _ in range(self.rng.choice((2, 3, 3, 4))))
        return self._same(
            f"{letters}{self.rng.choice(('-', '-', '-', '', '_'))}{self.rng.randint(1, 9999):0{self.rng.choice((2, 2, 3, 4))}}"
        )

    def make_order(self, parts: list[str], language: str) -> Value:
        del parts, language
        number = str(self.rng.randint(10, 99999))
        prefix = self.rng.choice(("", "", "", "#", "A-", "ORD-", "B"))
        return Value(prefix + number, number if prefix == "#" else prefix + number)

    def make_ticket(self, parts: list[str], language: str) -> Value:
        del parts, language
        return self._same(
            f"{self.rng.choice(('T-', 'T-', 'TCK-', 'BUG-', 'INC', 'OPS-', '#'))}{self.rng.randint(1, 4000)}"
        )

    def make_email(self, parts: list[str], language: str) -> Value:
        del parts, language
        name = self.rng.choice("anna tom.hill eva info j.smith support maria_l".split())
        return self._same(f"{name}@{self.rng.choice('example.com mail.test shop.io corp.eu'.split())}")

    def make_phone(self, parts: list[str], language: str) -> Value:
        del parts, language
        return self._same(
            f"{self.rng.choice(('+420 ', '+1 ', '0'))}{self.rng.randint(100, 999)} {self.rng.randint(100, 999)} {self.rng.randint(100, 999)}"
        )

    def make_version(self, parts: list[str], language: str) -> Value:
        del parts, language
        return self._same(
            f"{self.rng.choice(('v', ''))}{self.rng.randint(0, 9)}.{self.rng.randint(0, 20)}.{self.rng.randint(0, 9)}"
        )

    def make_ints(self, parts: list[str], language: str) -> Value:
        del parts, language
        numbers = [self.rng.randint(1, 99) for _ in range(self.rng.randint(3, 7))]
        texts = [str(one) for one in numbers]
        spoken = self.rng.choice(
            (", ".join(texts), f"[{', '.join(texts)}]", f"{', '.join(texts[:-1])} and {texts[-1]}")
        )
        return Value(spoken, numbers)

    def make_pair(self, parts: list[str], language: str) -> Value:
        del parts, language
        numbers = [self.rng.randint(-9, 20), self.rng.randint(-9, 20)]
        return Value(f"({numbers[0]}, {numbers[1]})", numbers)

    def make_matrix(self, parts: list[str], language: str) -> Value:
        del parts, language
        rows = [[self.rng.randint(0, 9) for _ in range(2)] for _ in range(2)]
        return Value(str(rows), rows)

    def make_people(self, parts: list[str], language: str) -> Value:
        del parts, language
        names = self.rng.sample(
            "Anna Ben Carla David Eva Frank Grace Henry Ines Jack Lucy Mark Nina Oscar Paula Tom".split(),
            self.rng.randint(2, 4),
        )
        return Value(f"{', '.join(names[:-1])} and {names[-1]}", names)

    def make_songs(self, parts: list[str], language: str) -> Value:
        del parts, language
        titles = self.rng.sample("Yesterday Imagine Clocks Yellow Hello Creep Zombie".split(), self.rng.randint(2, 3))
        return Value(", ".join(titles), titles)

    def make_songtitles(self, parts: list[str], language: str) -> Value:
        return self._list("song_title", parts, language)

    def make_foods(self, parts: list[str], language: str) -> Value:
        return self._list("ingredient", parts, language)

    def _list(self, kind: str, parts: list[str], language: str) -> Value:
        """Return one to three words of a kind, joined as a language does."""
        del parts
        names = self.rng.sample(WORDS[kind].split("|"), self.rng.choice((1, 2, 2, 3)))
        joiner = AND[language]
        return Value(f"{', '.join(names[:-1])} {joiner} {names[-1]}" if len(names) > 1 else names[0], names)

    def make_parcel(self, parts: list[str], language: str) -> Value:
        """Return the number of a parcel."""
        del parts, language
        letters = self.rng.choice(("PK", "RR", "DE", "1Z", "CZ", "TRK-", "P-", ""))
        return self._same(f"{letters}{self.rng.randint(1000, 99999999)}{self.rng.choice(('', '', 'X', 'DE'))}")

    def make_shelf(self, parts: list[str], language: str) -> Value:
        """Return a place in a warehouse."""
        del parts, language
        form = self.rng.choice(("{l}{n}", "{l}-{n}", "aisle {n}", "shelf {l}{n}", "dock {n}", "zone {l}"))
        return self._same(form.format(l=self.rng.choice("ABCDEF"), n=self.rng.randint(1, 30)))

    def make_unit(self, parts: list[str], language: str) -> Value:
        del parts, language
        pair = self.rng.choice(UNITS)
        self._unit = pair if self.rng.random() < 0.6 else pair[::-1]
        return self._same(self._unit[0])

    def make_unit2(self, parts: list[str], language: str) -> Value:
        del parts, language
        return self._same(self._unit[1])

    def spell_ordinal(self, number: int, language: str) -> str:
        """Return an ordinal number in words or digits."""
        words = ORDINALS.get(language, ())
        if 1 <= number <= len(words) and self.rng.random() < 0.8:
            return words[number - 1]
        suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
        return f"{number}{suffix}" if language == "en" else f"{number}."
