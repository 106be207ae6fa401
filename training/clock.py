"""Write dates and times as people do, in eight languages."""

from __future__ import annotations

import datetime

from num2words import num2words

MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
    "cs": "ledna února března dubna května června července srpna září října listopadu prosince",
}
DAY_FORMS = {
    "en": (
        "{d} {month} {y}", "{month} {d}, {y}", "{month} {d}{th}, {y}", "{month} {d}{th} {y}", "{d}{th} {month} {y}",
        "the {d}{th} of {month} {y}", "{month} {d} {y}", "{short} {d} {y}", "{d} {short} {y}", "{y}/{m:02}/{d:02}",
    ),
    "de": ("{d}. {month} {y}", "{d}.{m}.{y}", "{d:02}.{m:02}.{y}"),
    "fr": ("{d} {month} {y}", "{d:02}/{m:02}/{y}"),
    "es": ("{d} de {month} de {y}", "{d} de {month} del {y}", "{d} {month} {y}"),
    "it": ("{d} {month} {y}",),
    "pt": ("{d} de {month} de {y}",),
    "nl": ("{d} {month} {y}", "{d}-{m}-{y}"),
    "cs": ("{d}. {month} {y}", "{d}. {m}. {y}"),
}  # fmt: skip
PARTS = {
    "en": ("in the morning", "in the afternoon", "in the evening"),
    "de": ("morgens", "nachmittags", "abends"),
    "fr": ("du matin", "de l'après-midi", "du soir"),
    "es": ("de la mañana", "de la tarde", "de la noche"),
    "it": ("di mattina", "del pomeriggio", "di sera"),
    "pt": ("da manhã", "da tarde", "da noite"),
    "nl": ("'s ochtends", "'s middags", "'s avonds"),
    "cs": ("ráno", "odpoledne", "večer"),
}
OTHER_PARTS = {"de": ("vormittags", "am Nachmittag", "am Abend"), "it": ("del mattino", "di pomeriggio", "della sera")}
TIME_FORMS = {
    "en": {
        0: ("{h} {part}", "{h} o'clock {part}", "{n} {half}", "{n}{half}", "{n} {part}"),
        5: ("five past {h} {part}", "{n}:05 {half}"),
        10: ("ten past {h} {part}", "{n}:10{half}"),
        15: ("quarter past {h} {part}", "a quarter past {h} {part}", "{n}:15 {half}", "{n}.15 {half}"),
        20: ("twenty past {h} {part}", "{n}:20 {half}"),
        30: ("half past {h} {part}", "{n}:30 {half}", "{n}:30{half}", "half {n} {part}"),
        40: ("twenty to {next} {part}", "{n}:40 {half}"),
        45: ("quarter to {next} {part}", "a quarter to {next} {part}", "{n}:45 {half}"),
        50: ("ten to {next} {part}", "{n}:50 {half}"),
        55: ("five to {next} {part}",),
    },
    "de": {
        0: ("{h} Uhr {part}", "{hour} Uhr", "{n} Uhr {part}"),
        10: ("zehn nach {h} {part}",),
        15: ("viertel nach {h} {part}", "Viertel nach {h} {part}", "viertel {next} {part}", "{hour} Uhr 15"),
        30: ("halb {next} {part}", "{hour} Uhr 30", "{hour}.30 Uhr", "{hour}:30 Uhr"),
        45: ("viertel vor {next} {part}", "drei viertel {next} {part}", "dreiviertel {next} {part}", "{hour}:45 Uhr"),
        50: ("zehn vor {next} {part}",),
    },
    "fr": {
        0: ("{h} heures {part}", "{hour}h", "{hour} h", "{hour} heures"),
        10: ("{h} heures dix {part}",),
        15: ("{h} heures et quart {part}", "{hour}h15"),
        30: ("{h} heures et demie {part}", "{hour}h30", "{hour} h 30"),
        45: ("{next} heures moins le quart {part}", "{hour}h45"),
    },
    "es": {
        0: ("{h} {part}", "{h} en punto {part}", "{n} {part}"),
        15: ("{h} y cuarto {part}",),
        30: ("{h} y media {part}",),
        45: ("{next} menos cuarto {part}",),
    },
    "it": {
        0: ("{h} {part}", "{n} {part}"),
        15: ("{h} e un quarto {part}",),
        30: ("{h} e mezza {part}", "{h} e mezzo {part}"),
        45: ("{next} meno un quarto {part}", "{h} e tre quarti {part}"),
    },
    "pt": {
        0: ("{h} {part}", "{hour}h", "{n} horas {part}", "{h} horas {part}"),
        15: ("{h} e um quarto {part}", "{h} e quinze {part}", "{hour}h15"),
        30: ("{h} e meia {part}", "{hour}h30"),
        45: ("um quarto para as {next} {part}", "{hour}h45"),
    },
    "nl": {
        0: ("{h} uur {part}", "{hour} uur", "{n} uur {part}"),
        15: ("kwart over {h} {part}", "{hour}.15 uur"),
        30: ("half {next} {part}", "{hour}.30 uur"),
        45: ("kwart voor {next} {part}", "{hour}:45 uur"),
    },
    "cs": {
        0: ("v {n} {part}", "{hour} hodin"),
        15: ("čtvrt na {next} {part}",),
        30: ("půl {next} {part}",),
        45: ("tři čtvrtě na {next} {part}",),
    },
}  # fmt: skip
NOON = {"en": "noon", "de": "zwölf Uhr mittags", "fr": "midi", "es": "mediodía", "it": "mezzogiorno", "pt": "meio-dia"}
MINUTES = (0, 0, 0, 5, 10, 15, 15, 20, 30, 30, 30, 40, 45, 45, 50, 55)
_HALVES = {  # Czech: "půl osmé" is half past seven
    number: word
    for number, word in enumerate("jedné druhé třetí čtvrté páté šesté sedmé osmé deváté desáté jedenácté dvanácté".split(), 1)
}  # fmt: skip
_HOURS = {
    "fr": {1: "une"}, "it": {1: "una"}, "es": {1: "una"}, "pt": {1: "uma", 2: "duas"}, "de": {1: "eins"},
    "cs": dict(enumerate("jednu dvě tři čtyři pět šest sedm osm devět deset jedenáct dvanáct".split(), 1)),
}  # fmt: skip


def spell_date(day: datetime.date) -> dict[str, str]:
    """Return the ways to write a date, by language and number."""
    suffix = "th" if 10 <= day.day % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    spoken = {}
    for language, forms in DAY_FORMS.items():
        month = MONTHS[language].split()[day.month - 1]
        for number, form in enumerate(forms):
            spoken[f"{language} {number}"] = form.format(
                d=day.day, m=day.month, y=day.year, month=month, short=month[:3], th=suffix
            )
    return spoken


def spell_time(hour: int, minute: int) -> dict[str, str]:
    """Return the ways to write a time between 5:00 and 23:59, by language and number."""
    spoken = {f"{language} noon": word for language, word in NOON.items() if (hour, minute) == (12, 0)}
    for language, forms in TIME_FORMS.items():
        now, later = _spell_hour(hour, language), _spell_hour(hour + 1, language)
        for group, parts in enumerate(filter(None, (PARTS[language], OTHER_PARTS.get(language)))):
            part = parts[0 if hour < 12 else 1 if hour < 18 else 2]
            for number, form in enumerate(forms.get(minute, ())):
                if group and "{part}" not in form:
                    continue
                if form.startswith("half {n}"):
                    form = form.replace("{n}", now)  # British: "half six" is half past six
                if language == "cs" and "půl" in form:
                    later = _HALVES[hour % 12 + 1]
                spoken[f"{language} {minute} {number} {group}"] = form.format(
                    h=now, next=later, n=(hour - 1) % 12 + 1, hour=hour, part=part, half="am" if hour < 12 else "pm"
                )
    return spoken


def _spell_hour(hour: int, language: str) -> str:
    short = (hour - 1) % 12 + 1
    return _HOURS.get(language, {}).get(short) or str(num2words(short, lang=language))
