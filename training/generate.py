"""Make training examples from the families: a conversation with tools, and the reply of the model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from families import FIXED, SLOT, Entity, Family, Formula, read_entities, read_families, read_formulas
from values import LANGUAGES, Value, ValueMaker

from toolmason import ToolDefinition
from toolmason_local.prompts import SAY, Turn, format_call

CHAT = {
    "hello": "hi|hello|Hey there!|good morning|Hi, how are you?|good evening|hey|Hallo|Guten Tag|bonjour|salut|hola|buenos días|ciao|buongiorno|olá|bom dia|hoi|goedemorgen|ahoj|dobrý den|how are you doing?|yo|hello again|Hi there, nice to meet you",
    "thanks": "thanks|thank you very much|great, thanks!|thx|perfect, thank you|that helped, thanks|cool|nice work|well done|ok great|Danke!|vielen Dank|merci|merci beaucoup|gracias|muchas gracias|grazie|obrigado|bedankt|díky|děkuji|awesome|good job|thanks, that's great|super, danke",
    "bye": "bye|goodbye|see you|that's all|I'm done|bye for now|tschüss|auf Wiedersehen|au revoir|adiós|hasta luego|arrivederci|tchau|tot ziens|na shledanou|have a nice day|good night|exit|that is all for today, bye",
    "help": "what can you do?|help|what can I ask you?|how does this work?|which tools do you have?|what are you able to do?|who are you?|what are you for?|show me what you can do|how can you help me?|what commands are there?|list your functions|what are my options?|was kannst du?|Hilfe|wie kannst du mir helfen?|que peux-tu faire ?|aide|¿qué puedes hacer?|ayuda|cosa sai fare?|aiuto|o que você pode fazer?|ajuda|wat kun je?|co umíš?|pomoc|can you tell me your features|what is possible here?|what do you know how to do",
    "none": "tell me something funny|do you know a joke?|what's the capital of Italy?|who wrote Hamlet?|I'm bored|what is the meaning of life?|are you a robot?|I love you|you are wrong|why is the sky blue?|what's your name?|sing a song|write a poem about the sea|how tall is Mount Everest?|tell me a story|what is love?|do you like pizza?|I feel sad today|who won the world cup in 1998?|explain relativity to me|what should I do with my life?|erzähl mir einen Witz|wer hat Faust geschrieben?|raconte-moi une blague|¿quién pintó el Guernica?|cuéntame un chiste|raccontami una barzelletta|kdo napsal Babičku?|řekni mi vtip|what is the largest planet?|my cat is called Luna|I had a long day|it is raining again|can fish sleep?|the train was late|write me a cover letter|draw a horse|what's 42's meaning?|do my homework|fix my car|make me a sandwich|is there life on Mars?|when did Rome fall?|how do I tie a tie?|can you drive?|who is your favourite singer?|say something in Latin|I think you are great|why do cats purr?|how many legs has a spider?|give me advice about love|I am tired of this|what do you think about football?|are you alive?|how old are you?|who made you?|can you keep a secret?|which came first, the chicken or the egg?|what is the best film ever?|my head hurts|my neighbour is loud|I lost my keys|we are getting married!|the food was great|tell me about ancient Egypt|who discovered penicillin?|what is a black hole?|how do vaccines work?|give me a riddle|what is the square of happiness|write a haiku|compose a melody|help me with my essay|what does this poem mean?|should I buy or rent?|is it healthy to fast?|recommend me a language to learn|why do people yawn?|teach me to dance|how do I become rich?|what would you do?|nothing, just testing|test|asdf|hmm|never mind|forget it|what?|why?|really?|I do not understand|wie alt bist du?|was ist der Sinn des Lebens?|mir ist langweilig|warum ist der Himmel blau?|schreib ein Gedicht|ich bin müde|wer hat das Telefon erfunden?|quel âge as-tu ?|je m'ennuie|pourquoi le ciel est bleu ?|écris un poème|qui a peint la Joconde ?|estoy aburrido|¿por qué el cielo es azul?|escribe un poema|¿cuántos años tienes?|perché il cielo è blu?|sono stanco|scrivi una poesia|chi ha inventato la radio?|estou cansado|quem descobriu o Brasil?|escreva um poema|ik verveel me|waarom is de lucht blauw?|wie heeft de radio uitgevonden?|nudím se|proč je nebe modré?|kolik ti je let?|napiš báseň|jsem unavený|je půlnoc a nemůžu spát",
}
OPENERS = ("please ", "can you ", "could you ", "hey, ", "I'd like you to ", "quickly: ", "hi, ", "ok, ", "now ")
ACTIONS = ("list", "search", "get", "delete", "create", "count", "update")
"""Actions of the tools about records."""
SAME = {
    "set_reminder": "add_todo", "sum_numbers": "add", "switch_lamp": "set_light", "kitchen_timer": "set_timer", "remind_in": "add_todo",
    "shopping_list_add": "add_to_cart", "play_playlist": "play_music", "day_plan": "list_events", "days_forecast": "get_forecast",
    "currency_amount": "convert_currency", "match_result": "sports_score", "bounce_service": "restart_service", "deploy_version": "deploy",
    "read_logs": "search_logs", "request_leave": "book_vacation", "expense_claim": "log_expense", "price_with_tax": "sales_tax",
    "apply_discount": "discount", "book_stock": "stock_level", "save_note": "note create", "search_notes": "note search", "case_status": "get_ticket",
    "hand_over_case": "assign_ticket", "cancel_booking": "cancel_order",
    "make_playlist": "create_playlist", "pay_bill": "send_money", "book_visit": "book_appointment", "log_workout": "log_run",
    "reserve_title": "reserve_copy", "find_titles": "search_books", "tail_logs": "search_logs", "open_issue": "create_ticket",
    "set_issue_status": "close_ticket", "add_issue_comment": "reply_to_case", "direct_trains": "train_times", "room_light": "set_light",
    "room_temperature": "read_sensor", "recipes_with": "find_recipe", "shipping_quote": "parcel_price", "record_grade": "grade_student",
}  # fmt: skip
"""Families whose requests cannot be told apart."""
SUBJECTS = {
    "arithmetic": "calculate add multiply divide percent_of calculate_tip",
    "weather": "get_weather get_forecast sunrise",
    "task": "set_reminder add_todo list_todos delete_todo complete_todo create_event list_events set_alarm set_timer note habit appointment meeting job wish add_to_cart book_appointment cancel_visit move_visit move_event free_slots",
    "money": "convert_currency exchange_rate send_money account_balance log_expense expense payment set_budget spending_report transfer_between_accounts freeze_card unfreeze_card list_transactions find_cash_machine",
    "unit": "convert_unit distance get_directions train_times ferry_times",
    "date": "now days_between weekday add_days get_time",
    "shop": "quote_price find_products stock_level place_order cancel_order order_status refund_order product invoice create_invoice shipment track_parcel redirect_parcel report_damage move_stock receive_goods low_stock",
    "ticket": "get_ticket create_ticket close_ticket assign_ticket issue open_incident set_priority reply_to_case case_status hand_over_case search_issues",
    "file": "read_file write_file delete_file list_files search_files photo resize_image convert_file rename_file",
    "web": "web_search wikipedia get_news fetch_url article define_word movie_search book find_recipe recipe population search_books scale_recipe",
    "message": "send_message call_contact contact invite customer_info employee_info customer employee user create_user subscribe reset_password subscription find_employee_phone change_address page_person grant_access revoke_access",
    "music": "play_music song create_playlist playlist set_volume play_song playback_control get_lyrics set_sleep_timer",
    "home": "set_temperature device",
    "table": "book_table reservation find_hotel book_room search_flights",
    "code": "git_log git_commit create_branch branch",
    "service": "restart_service deploy service_status search_logs ping dns_lookup server alert backup scale_service rollback disk_usage cpu_load backup_database",
    "text": "translate sentiment count_words reverse_text uppercase summarize detect_language encode_base64 hash_text comment",
    "numbers": "random_number roll_dice flip_coin is_prime sort_numbers mean max_of roman_numeral",
    "health": "bmi calories workout patient log_meal log_weight log_run take_medicine refill_prescription list_doctors log_water log_sleep set_goal fitness_summary",
    "light": "dim_light switch_lamp set_blinds set_light",
    "oven": "heat_oven",
    "door": "lock_door doorbell_log",
    "clean": "start_vacuum",
    "climate": "read_sensor set_fan",
    "garden": "water_plants",
    "pet": "feed_pet pet",
    "car": "car_range charge_car parking book_taxi rent_bike search_cars extend_rental",
    "trip": "flight_status packing_list visa_rules hotel_checkin room_service museum_hours find_events tide snow_depth",
    "sport": "sports_score match_result book_court",
    "scale": "on_call renew_certificate schedule_job",
    "repository": "run_tests pull_requests merge_pr feature_flag",
    "database": "count_rows run_query",
    "books": "book_stock reserve_copy borrow_book return_book rate_product renew_loan check_fees",
    "table order": "order_food bill_for_table allergens",
    "work": "request_leave sick_note track_hours",
    "budget": "split_bill price_with_tax apply_discount parcel_price",
    "school": "grade_student homework_for enroll_student mark_absent",
}
"""Families and entities by subject."""
APPLICATIONS = (
    "dim_light switch_lamp set_blinds lock_door heat_oven start_vacuum read_sensor water_plants set_fan set_temperature play_playlist set_volume set_alarm",
    "heat_oven kitchen_timer shopping_list_add find_recipe convert_unit calories log_meal",
    "save_note search_notes day_plan remind_in kitchen_timer create_event add_todo list_todos complete_todo",
    "flight_status days_forecast train_times book_taxi currency_amount find_hotel visa_rules packing_list get_time museum_hours find_events",
    "bounce_service scale_service deploy_version rollback read_logs disk_usage cpu_load on_call page_person open_incident feature_flag",
    "run_tests pull_requests merge_pr git_log create_branch deploy_version feature_flag",
    "case_status hand_over_case set_priority reply_to_case create_ticket customer_info change_address refund_order",
    "search_books book_stock reserve_copy museum_hours rate_product cancel_booking parcel_price",
    "order_food bill_for_table allergens book_table cancel_booking split_bill",
    "request_leave sick_note track_hours expense_claim find_employee_phone book_room employee_info",
    "log_meal log_weight log_run take_medicine book_appointment calories bmi",
    "set_budget spending_report log_expense send_money account_balance currency_amount split_bill price_with_tax",
    "grade_student homework_for borrow_book return_book define_word translate",
    "hotel_checkin room_service cancel_booking book_taxi book_court bill_for_table",
    "car_range charge_car parking get_directions book_taxi rent_bike",
    "play_song playback_control get_lyrics make_playlist set_sleep_timer set_volume play_playlist",
    "transfer_between_accounts freeze_card unfreeze_card list_transactions account_balance send_money set_budget find_cash_machine",
    "transfer_between_accounts freeze_card list_transactions account_balance pay_bill currency_amount",
    "book_visit cancel_visit move_visit refill_prescription list_doctors",
    "log_workout log_water log_sleep set_goal fitness_summary log_weight log_meal",
    "renew_loan reserve_title check_fees find_titles museum_hours",
    "track_parcel redirect_parcel report_damage shipping_quote",
    "search_cars extend_rental cancel_booking car_range parking",
    "move_stock receive_goods low_stock stock_level quote_price",
    "recipes_with scale_recipe shopping_list_add kitchen_timer convert_unit calories",
    "create_event move_event free_slots add_todo list_events set_alarm",
    "open_issue set_issue_status search_issues add_issue_comment assign_ticket",
    "tail_logs bounce_service scale_service service_status rollback disk_usage",
    "direct_trains get_weather get_time find_hotel currency_amount",
    "room_light room_temperature set_blinds lock_door start_vacuum set_fan",
    "enroll_student record_grade mark_absent homework_for",
)
"""Families that one application could offer. Requests are told apart by more than the subject."""
SUBJECT_OF = {name: subject for subject, names in SUBJECTS.items() for name in names.split()}
SUBJECT_OF |= {"note create": "task", "note search": "task"}
FIELDS = (
    ("city", "city"), ("days", "int 1 30"), ("name", "person"), ("total", "num 2 900"), ("price", "num 2 900"), ("paid", "bool paid unpaid"),
    ("number", "order"), ("date", "date"), ("email", "email"), ("quantity", "int 1 60"), ("title", "movie"), ("color", "enum red green blue"),
    ("priority", "enum low medium high"), ("numbers", "ints"), ("sku", "sku"), ("temperature", "int -9 40"), ("currency", "currency"), ("urgent", "bool urgent normal"),
    ("guests", "int 1 20"), ("names", "people"), ("sentiment", "enum positive negative neutral"), ("age", "int 1 90"), ("topic", "topic"), ("phone", "phone"),
)  # fmt: skip
"""Fields of typed answers."""
JOINERS = {"en": (" and ", " and then ", ", also ", " and also ", "; ", ". Then "), "de": (" und ",), "fr": (" et ",), "es": (" y ",), "it": (" e ",), "pt": (" e ",), "nl": (" en ",), "cs": (" a ",)}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """Conversation up to a reply, and the reply."""

    tools: list[ToolDefinition]
    turns: list[Turn]
    reply: str


@dataclass
class Tool:
    """Tool made from a family: its definition, and how requests for it are made."""

    definition: ToolDefinition
    ask: Callable[[str], Request]
    """Make a request in a language."""
    kind: str = ""
    """Family, or entity with action: tools of one kind do the same."""
    subject: str = ""
    """A request that a tool of this subject could answer is not an example of one that no tool can."""


@dataclass(frozen=True)
class Request:
    """Request of a user with the call that it needs, and how the conversation goes on."""

    text: str
    arguments: dict[str, Any]
    result: str | None = None
    answer: str | None = None
    follow_up: tuple[str, dict[str, Any]] | None = None
    """Short second request, and its arguments for the same tool."""


class Generator:
    """Maker of examples."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.values = ValueMaker(self.rng)
        self.families, self.formulas, self.entities = read_families(), read_formulas(), read_entities()

    def make(self) -> Example:
        """Return a random example."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.04:
            return self._make_extraction()
        tools = self._make_box()
        definitions = [tool.definition for tool in tools]
        if draw < 0.12:
            intent = rng.choices(tuple(CHAT), (2, 2, 1, 3, 5))[0]
            before = self._make_exchange(rng.choice(tools)) if rng.random() < 0.3 else []
            return Example(definitions, [*before, Turn("user", self.vary(rng.choice(CHAT[intent].split("|"))))], intent)
        if draw < 0.21:
            return Example(definitions, [Turn("user", self.vary(self._unrelated(tools)))], "none")
        if draw < 0.245:
            return self._make_missing_action()
        language = "en" if rng.random() < 0.68 else rng.choice(LANGUAGES[1:])
        tool = rng.choice(tools)
        request = tool.ask(language)
        name = tool.definition.name
        user = Turn("user", self.vary(request.text))
        call = format_call(name, request.arguments)
        if draw < 0.335:
            other = rng.choice(tools) if rng.random() < 0.5 else tool
            second = other.ask(language)
            if second.text == request.text:
                return Example(definitions, [user], call)
            joiner = rng.choice(JOINERS[language])
            both = Turn("user", self.vary(request.text.rstrip("?.! ") + joiner + second.text))
            return Example(definitions, [both], f"{call}\n{format_call(other.definition.name, second.arguments)}")
        if draw < 0.45 and request.result is not None and request.answer is not None:
            before = self._make_exchange(rng.choice(tools)) if rng.random() < 0.2 else []
            turns = [*before, user, Turn("assistant", call), Turn("tool", request.result)]
            return Example(definitions, turns, f"{SAY}{request.answer}")
        if draw < 0.60:
            turns = [
                user,
                Turn("assistant", call),
                Turn("tool", request.result or "ok"),
                Turn("assistant", request.answer or "Done."),
            ]
            if request.follow_up is not None and rng.random() < 0.6:
                text, arguments = request.follow_up
                return Example(definitions, [*turns, Turn("user", self.vary(text))], format_call(name, arguments))
            other = rng.choice(tools)
            second = other.ask(language)
            return Example(
                definitions,
                [*turns, Turn("user", self.vary(second.text))],
                format_call(other.definition.name, second.arguments),
            )
        return Example(definitions, [user], call)

    def _make_exchange(self, tool: Tool) -> list[Turn]:
        """Return a request with its call, result and answer."""
        request = tool.ask("en")
        call = Turn("assistant", format_call(tool.definition.name, request.arguments))
        return [
            Turn("user", request.text),
            call,
            Turn("tool", request.result or "ok"),
            Turn("assistant", request.answer or "Done."),
        ]

    def make_chain(self) -> Example:
        """Return an example in which the second call needs the result of the first."""
        rng = self.rng
        entity = rng.choice(self.entities)
        by_action = {action: self._make_entity_tool(entity, action) for action in ("list", "search", "get", "delete")}
        first = by_action[rng.choice(("list", "search"))]
        second_action = rng.choice(("get", "delete"))
        second = by_action[second_action]
        others = self._make_tools(rng.randint(0, 3))
        tools = [tool.definition for tool in (first, second, *others)]
        tools = list({tool.name: tool for tool in tools}.values())
        rng.shuffle(tools)
        samples = rng.sample(entity.samples, min(len(entity.samples), rng.randint(2, 3)))
        ids = [self.values.make(entity.id_kind).json for _ in samples]
        items = [{"id": one, "name": sample} for one, sample in zip(ids, samples, strict=True)]
        number = rng.randrange(len(items))
        result = json.dumps(items, ensure_ascii=False)
        argument = next(iter(second.definition.input_schema["properties"]))
        call = format_call(second.definition.name, {argument: ids[number]})
        verb = (
            rng.choice(("delete", "remove"))
            if second_action == "delete"
            else rng.choice(("show me", "open", "give me the details of"))
        )
        if "search" in first.definition.name or first.definition.input_schema["properties"]:
            first_arguments = {next(iter(first.definition.input_schema["properties"])): samples[number]}
            text = f"{verb} the {entity.singular} {samples[number]}"
        else:
            first_arguments = {}
            text = f"{verb} the {self.values.spell_ordinal(number + 1, 'en')} of my {entity.plural}"
        asked = Turn("user", self.vary(text))
        first_call = Turn("assistant", format_call(first.definition.name, first_arguments))
        if rng.random() < 0.3:
            return Example(tools, [asked], first_call.text)
        if rng.random() < 0.5:
            return Example(tools, [asked, first_call, Turn("tool", result)], call)
        listed = Turn("assistant", self._list_items(samples, entity.plural))
        ordinal = self.values.spell_ordinal(number + 1, "en")
        pick = rng.choice(
            (
                f"{verb} the {ordinal} one",
                f"{verb} {samples[number]}",
                f"{verb} the {ordinal}",
                f"now {verb} {samples[number]}",
            )
        )
        opening = Turn(
            "user",
            rng.choice((f"show my {entity.plural}", f"list all {entity.plural}", f"which {entity.plural} are there?")),
        )
        return Example(tools, [opening, first_call, Turn("tool", result), listed, Turn("user", pick)], call)

    def _make_box(self) -> list[Tool]:
        """Return the tools of an application: of one subject, about one kind of record, or of all sorts."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.42:
            is_application = rng.random() < 0.6
            names = (rng.choice(APPLICATIONS) if is_application else SUBJECTS[rng.choice(tuple(SUBJECTS))]).split()
            members = [family for family in self.families if family.names[0] in names]
            tools = [
                self._make_family_tool(family) for family in rng.sample(members, min(len(members), rng.randint(2, 6)))
            ]
        elif draw < 0.54:
            entity = rng.choice(self.entities)
            tools = [self._make_entity_tool(entity, action) for action in rng.sample(ACTIONS, rng.randint(2, 6))]
        else:
            return self._make_tools(rng.choice((1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8)))
        tools += self._make_tools(rng.choice((0, 0, 0, 1, 2)))
        rng.shuffle(tools)
        by_kind = {tool.kind: tool for tool in tools}
        return list({tool.definition.name: tool for tool in by_kind.values()}.values())

    def _make_extraction(self) -> Example:
        """Return a typed answer: the values of its fields are in a text, or in a result as JSON."""
        rng = self.rng
        kinds = dict(rng.sample(FIELDS, rng.choice((1, 1, 2, 3, 3, 4))))
        fields = {name: self.values.make(kind) for name, kind in kinds.items()}
        answer = {name: value.json for name, value in fields.items()}
        draw = rng.random()
        if draw < 0.35:
            extra = {name: self.values.make(kind).json for name, kind in rng.sample(FIELDS, 2) if name not in answer}
            items = [*answer.items(), *extra.items()]
            rng.shuffle(items)
            text = json.dumps(dict(items), ensure_ascii=False)
        elif draw < 0.5 and len(answer) == 1 and isinstance(next(iter(answer.values())), int | float | str):
            text = str(next(iter(answer.values())))
        else:
            parts = [self._speak_field(name, value) for name, value in fields.items()]
            rng.shuffle(parts)
            text = rng.choice(
                ("{p}", "{p}.", "It has {p}.", "I have {p}", "A record with {p}", "Here: {p}", "We agreed on {p}.")
            ).format(p=", ".join(parts))
        if len(answer) == 1 and rng.random() < 0.5:
            (value,), (kind,) = answer.values(), kinds.values()
            answer, properties = {"result": value}, {"result": self.values.schema(kind)}
        else:
            properties = {name: self.values.schema(kind) for name, kind in kinds.items()}
        name = rng.choice(("answer", "final_answer", "final_result", "respond", "Result", "Record"))
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        definition = ToolDefinition(
            name, rng.choice(("The answer.", "Give the final answer.", "Answer of the user's request.")), schema
        )
        return Example([definition], [Turn("user", text)], format_call(name, answer))

    def _speak_field(self, name: str, value: Value) -> str:
        spoken = name.replace("_", " ")
        if isinstance(value.json, bool):
            return spoken if value.json else f"not {spoken}"
        if isinstance(value.json, int | float):
            return self.rng.choice(
                (f"{value.spoken} {spoken}", f"a {spoken} of {value.spoken}", f"{spoken} {value.spoken}")
            )
        quoted = f'"{value.spoken}"' if self.rng.random() < 0.5 else value.spoken
        return self.rng.choice((f"{spoken} {quoted}", f"the {spoken} is {quoted}", quoted))

    def _make_missing_action(self) -> Example:
        """Return a request for an action that the tools about a record do not have."""
        entity = self.rng.choice(self.entities)
        # A search may answer a request for one record, and a list one for a count.
        missing, others = self.rng.choice(
            (
                ("delete", ("list", "get", "create")),
                ("create", ("list", "get", "delete")),
                ("update", ("list", "search", "get")),
            )
        )
        request = self._make_entity_tool(entity, missing).ask("en")
        tools = [self._make_entity_tool(entity, action) for action in others if self.rng.random() < 0.7]
        tools += self._make_tools(self.rng.randint(1, 3))
        tools = [tool for tool in tools if tool.kind != f"{entity.singular} {missing}"]
        definitions = list({tool.definition.name: tool.definition for tool in tools}.values())
        self.rng.shuffle(definitions)
        return Example(definitions, [Turn("user", self.vary(request.text))], "none")

    def _make_tools(self, count: int) -> list[Tool]:
        tools: dict[str, Tool] = {}
        for _ in range(count):
            draw = self.rng.random()
            if draw < 0.62:
                tool = self._make_family_tool(self.rng.choice(self.families))
            elif draw < 0.82:
                tool = self._make_entity_tool(self.rng.choice(self.entities), self.rng.choice(ACTIONS))
            else:
                tool = self._make_formula_tool(self.rng.choice(self.formulas))
            # Two tools of one kind would make requests ambiguous. Different ones of a subject are good distractors.
            tools.setdefault(tool.kind, tool)
        return list({tool.definition.name: tool for tool in tools.values()}.values())

    def _unrelated(self, tools: list[Tool]) -> str:
        subjects = {tool.subject for tool in tools}
        while True:
            tool = self._make_tools(1)[0]
            if tool.subject not in subjects:
                return tool.ask("en" if self.rng.random() < 0.8 else self.rng.choice(LANGUAGES[1:])).text

    def _make_definition(
        self, name: str, about: str, parameters: list[tuple[str, dict[str, Any], bool]]
    ) -> ToolDefinition:
        if self.rng.random() < 0.08:
            name = "".join(part.capitalize() if index else part for index, part in enumerate(name.split("_")))
        elif self.rng.random() < 0.08:
            name = (
                f"{self.rng.choice(('app', 'api', 'svc', 'my', 'tools', 'x'))}{self.rng.choice(('_', '.', '__'))}{name}"
            )
        properties = {parameter: schema for parameter, schema, _ in parameters}
        required = [parameter for parameter, _, is_optional in parameters if not is_optional]
        return ToolDefinition(name, about, {"type": "object", "properties": properties, "required": required})

    def _make_family_tool(self, family: Family) -> Tool:
        rng = self.rng
        chosen = [(parameter, rng.choice(parameter.names)) for parameter in family.parameters]
        rng.random() < 0.3 and rng.shuffle(chosen)
        parameters = []
        for parameter, name in chosen:
            schema = self.values.schema(parameter.kind)
            if rng.random() < 0.7:
                schema["description"] = rng.choice(parameter.notes)
            parameters.append((name, schema, parameter.is_optional))
        definition = self._make_definition(rng.choice(family.names), rng.choice(family.about), parameters)
        names = {parameter.slot: name for parameter, name in chosen}
        order = [parameter.slot for parameter, _ in chosen]
        kinds = {parameter.slot: parameter.kind for parameter in family.parameters}

        def ask(language: str) -> Request:
            templates = family.requests.get(language) or family.requests["en"]
            spoken_language = language if language in family.requests else "en"
            template = rng.choice(templates)
            fixed = {slot: Value("", json.loads(value)) for slot, value in FIXED.findall(template)}
            template = FIXED.sub("", template)
            used = {slot for _, slot in SLOT.findall(template)}
            values = {slot: self.values.make(kind, spoken_language) for slot, kind in kinds.items() if slot in used}
            values.update(fixed)
            text = _fill(template, values, self.values, spoken_language)
            arguments = {names[slot]: values[slot].json for slot in order if slot in values}
            result, answer = self._make_answer(family, values)
            return Request(
                text, arguments, result, answer, self._make_follow_up(kinds, values, names, order, spoken_language)
            )

        kind = SAME.get(family.names[0], family.names[0])
        return Tool(definition, ask, kind, SUBJECT_OF.get(kind, kind))

    def _make_follow_up(
        self, kinds: dict[str, str], values: dict[str, Value], names: dict[str, str], order: list[str], language: str
    ) -> tuple[str, dict[str, Any]] | None:
        changed = [
            slot
            for slot in values
            if kinds[slot].split()[0] not in ("expr", "action", "saying", "bool", "unit", "unit2")
        ]
        if not changed or language != "en":
            return None
        slot = self.rng.choice(changed)
        value = self.values.make(kinds[slot])
        forms = (
            "and {v}?",
            "what about {v}?",
            "And {v}",
            "how about {v}?",
            "same for {v}",
            "and for {v}?",
            "now {v}",
            "{v}?",
            "now with {v} please",
        )
        if kinds[slot] == "city":
            forms = (*forms, "and in {v}?", "And in {v}?", "what about in {v}?")
        text = self.rng.choice(forms).format(v=value.spoken)
        return text, {names[one]: (value if one == slot else values[one]).json for one in order if one in values}

    def _make_answer(self, family: Family, values: dict[str, Value]) -> tuple[str | None, str | None]:
        rng = self.rng
        if not family.results:
            return None, None
        variables = {name: self.values.make(kind) for name, kind in family.variables.items()}
        known = {
            **{
                slot: str(value.json) if not isinstance(value.json, list) else value.spoken
                for slot, value in values.items()
            },
            **{name: str(value.json) for name, value in variables.items()},
        }
        for slot, value in values.items():
            if isinstance(value.json, bool):
                known[slot] = value.spoken
        result = _fill_text(rng.choice(family.results), known)
        if family.lists_items:
            try:
                items = json.loads(result)
            except ValueError:
                items = [line.partition(". ")[2] or line for line in result.splitlines()]
            if not isinstance(items, list):
                return result, result
            texts = [
                str(item.get("title") or item.get("name") or next(iter(item.values())))
                if isinstance(item, dict)
                else str(item)
                for item in items
            ]
            return result, self._list_items(texts, "")
        answers = [
            one for one in family.answers if all(slot in known or slot == "result" for _, slot in SLOT.findall(one))
        ]
        # A sentence that leaves an argument out may be wrong: the price of three is not that of one.
        fullest = max((len(set(SLOT.findall(one))) for one in answers), default=0)
        answers = [one for one in answers if len(set(SLOT.findall(one))) == fullest]
        if not answers:
            return result, None
        return result, _fill_text(rng.choice(answers), {**known, "result": result})

    def _list_items(self, texts: list[str], noun: str) -> str:
        if not texts:
            return f"There are no {noun}." if noun else "There is nothing."
        listed = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
        return (
            f"There are {len(texts)} {noun}: {listed}."
            if noun
            else f"There are {len(texts)}: {listed}."
            if len(texts) > 1
            else f"There is one: {listed}."
        )

    def _make_formula_tool(self, formula: Formula) -> Tool:
        rng = self.rng
        about = rng.choice(
            (
                f"Calculate {formula.thing}.",
                f"Calculates {formula.thing}.",
                f"Compute {formula.thing} from the given values.",
                f"Returns {formula.thing}.",
                f"{formula.thing[0].upper()}{formula.thing[1:]}.",
            )
        )
        parameters = []
        for name, spoken, kind, is_optional in formula.parameters:
            schema = self.values.schema(kind)
            if rng.random() < 0.8:
                schema["description"] = rng.choice(
                    (f"The {spoken}.", spoken, f"{spoken.capitalize()} of the object", f"The {spoken} to use")
                )
            parameters.append((name, schema, is_optional))
        definition = self._make_definition(rng.choice(formula.names), about, parameters)

        def ask(language: str) -> Request:
            del language
            arguments: dict[str, Any] = {}
            clauses = []
            for name, spoken, kind, is_optional in formula.parameters:
                if is_optional and rng.random() < 0.6:
                    continue
                value = self.values.make(kind)
                arguments[name] = value.json
                unit = (
                    rng.choice(("", "", "", " m", " cm", " units", " kg", " meters", " seconds"))
                    if kind.startswith(("num", "int")) and not kind.startswith("ints")
                    else ""
                )
                clauses.append(
                    rng.choice(
                        (
                            f"a {spoken} of {value.spoken}{unit}",
                            f"{spoken} {value.spoken}{unit}",
                            f"{spoken} is {value.spoken}{unit}",
                            f"{spoken} = {value.spoken}",
                            f"the {spoken} {value.spoken}{unit}",
                        )
                    )
                )
            joined = clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])} and {clauses[-1]}"
            form = rng.choice(
                (
                    "What is {t} with {c}?",
                    "Calculate {t} with {c}.",
                    "Find {t} given {c}.",
                    "Compute {t} if {c}.",
                    "Can you tell me {t} for {c}?",
                    "{c}: what is {t}?",
                    "I need {t}. Use {c}.",
                    "Determine {t} where {c}.",
                    "How large is {t} with {c}?",
                    "Please work out {t} for {c}",
                )
            )
            number = self.values.make("num 2 900").json
            return Request(
                form.format(t=formula.thing, c=joined),
                arguments,
                str(number),
                f"{formula.thing[0].upper()}{formula.thing[1:]} is {number}.",
            )

        return Tool(definition, ask, formula.names[0], formula.names[0])

    def _make_entity_tool(self, entity: Entity, action: str) -> Tool:
        tool = self._make_action(entity, action)
        tool.kind, tool.subject = f"{entity.singular} {action}", SUBJECT_OF.get(entity.singular, entity.singular)
        return tool

    def _make_action(self, entity: Entity, action: str) -> Tool:
        rng = self.rng
        one, many = entity.singular, entity.plural
        make = self.values.make
        identifier = rng.choice(("id", f"{one}_id", "number", "key"))
        id_schema = {
            **self.values.schema(entity.id_kind),
            "description": rng.choice((f"The {one}", f"ID of the {one}", "ID")),
        }
        # Each action: names, descriptions, parameters, and a maker of requests.
        if action == "list":
            names, about = (
                (f"list_{many}", f"get_{many}", f"show_{many}", f"all_{many}"),
                (f"List all {many}.", f"Show the {many}.", f"Returns every {one}."),
            )
            texts = (
                f"show my {many}",
                f"list all {many}",
                f"which {many} are there?",
                f"what {many} do I have?",
                f"give me the {many}",
                f"{many} please",
                f"let me see the {many}",
            )
            foreign = {
                "de": f"zeige alle {{p}}",
                "fr": "montre tous les {p}",
                "es": "muestra todos los {p}",
                "it": "mostra tutti i {p}",
                "pt": "mostre todos os {p}",
                "nl": "toon alle {p}",
                "cs": "ukaž všechny {p}",
            }
            samples = list(rng.sample(entity.samples, min(len(entity.samples), rng.randint(0, 3))))

            def ask(language: str) -> Request:
                text = rng.choice(texts) if language == "en" else foreign[language].format(p=entity.plurals[language])
                return Request(text, {}, json.dumps(samples, ensure_ascii=False), self._list_items(samples, many))

            return Tool(self._make_definition(rng.choice(names), rng.choice(about), []), ask)
        if action == "count":
            number = rng.randint(0, 60)
            foreign = {
                "de": "Wie viele {p} gibt es?",
                "fr": "combien de {p} y a-t-il ?",
                "es": "¿cuántos {p} hay?",
                "it": "quanti {p} ci sono?",
                "pt": "quantos {p} existem?",
                "nl": "hoeveel {p} zijn er?",
                "cs": "kolik je {p}?",
            }
            texts = (
                f"how many {many} are there?",
                f"count the {many}",
                f"number of {many}",
                f"how many {many} do we have?",
            )

            def ask(language: str) -> Request:
                text = rng.choice(texts) if language == "en" else foreign[language].format(p=entity.plurals[language])
                return Request(text, {}, str(number), f"There are {number} {many}.")

            return Tool(
                self._make_definition(
                    rng.choice((f"count_{many}", f"number_of_{many}", f"{one}_count")),
                    rng.choice((f"Number of {many}.", f"Count the {many}.")),
                    [],
                ),
                ask,
            )
        if action == "search":
            query = rng.choice(("query", "text", "name", "keyword", "term", "q"))
            texts = (
                "find {many} about {q}",
                "search the {many} for {q}",
                "look for the {one} {q}",
                "is there a {one} called {q}?",
                "which {many} have {q} in them?",
                "find {q} in my {many}",
                "{one} {q}?",
            )

            def ask(language: str) -> Request:
                del language
                sample = rng.choice(entity.samples)
                return Request(
                    rng.choice(texts).format(one=one, many=many, q=sample),
                    {query: sample},
                    json.dumps([sample], ensure_ascii=False),
                    f"There is one: {sample}.",
                )

            definition = self._make_definition(
                rng.choice((f"search_{many}", f"find_{many}", f"find_{one}")),
                rng.choice((f"Search the {many}.", f"Find {many} by a word.")),
                [(query, {"type": "string", "description": "Word to search for"}, False)],
            )
            return Tool(definition, ask)
        if action in ("get", "delete"):
            if action == "get":
                names, about = (
                    (f"get_{one}", f"show_{one}", f"read_{one}", f"{one}_details"),
                    (f"Details of one {one}.", f"Show a {one}.", f"Get the {one} with an ID."),
                )
                texts = (
                    "show {one} {i}",
                    "details of {one} {i}",
                    "open {one} {i}",
                    "what is in {one} {i}?",
                    "get {one} number {i}",
                    "tell me about {one} {i}",
                    "I want to see {one} {i}",
                )
            else:
                names, about = (
                    (f"delete_{one}", f"remove_{one}", f"drop_{one}"),
                    (f"Delete a {one}.", f"Remove the {one} with an ID."),
                )
                texts = (
                    "delete {one} {i}",
                    "remove {one} {i}",
                    "get rid of {one} {i}",
                    "{one} {i} can go",
                    "please erase {one} {i}",
                    "drop {one} number {i}",
                )

            def ask(language: str) -> Request:
                value = make(entity.id_kind, "en")
                result = (
                    json.dumps({"id": value.json, "name": entity.samples[0]}, ensure_ascii=False)
                    if action == "get"
                    else "ok"
                )
                answer = (
                    f"The {one} {value.json} is {entity.samples[0]}."
                    if action == "get"
                    else f"The {one} {value.json} is deleted."
                )
                del language
                return Request(
                    rng.choice(texts).format(one=one, i=value.spoken), {identifier: value.json}, result, answer
                )

            return Tool(
                self._make_definition(rng.choice(names), rng.choice(about), [(identifier, id_schema, False)]), ask
            )
        fields = list(entity.fields)
        if action == "update":
            field, kind = rng.choice(fields)
            texts = (
                "change the {f} of {one} {i} to {v}",
                "set {f} of {one} {i} to {v}",
                "{one} {i}: new {f} {v}",
                "update {one} {i}, {f} {v}",
                "the {f} of {one} {i} should be {v}",
            )

            def ask(language: str) -> Request:
                del language
                identity, value = make(entity.id_kind), make(kind)
                text = rng.choice(texts).format(one=one, i=identity.spoken, f=field, v=value.spoken)
                return Request(
                    text,
                    {identifier: identity.json, field: value.json},
                    "ok",
                    f"The {field} of {one} {identity.json} is now {value.json}.",
                )

            definition = self._make_definition(
                rng.choice((f"update_{one}", f"edit_{one}", f"change_{one}", f"set_{one}_{field}")),
                rng.choice((f"Change a {one}.", f"Update the {field} of a {one}.")),
                [(identifier, id_schema, False), (field, self.values.schema(kind), False)],
            )
            return Tool(definition, ask)
        texts = (
            "add a {one}: {v}",
            "new {one}: {v}",
            "create a {one} with {v}",
            "save a new {one}, {v}",
            "make a {one}: {v}",
            "I want to add the {one} {v}",
        )

        def ask(language: str) -> Request:
            del language
            values = [(name, make(kind)) for name, kind in fields]
            spoken = ", ".join(
                rng.choice((value.spoken, f"{name} {value.spoken}", value.spoken)) for name, value in values
            )
            return Request(
                rng.choice(texts).format(one=one, v=spoken),
                {name: value.json for name, value in values},
                "ok",
                f"The {one} is saved.",
            )

        definition = self._make_definition(
            rng.choice((f"create_{one}", f"add_{one}", f"new_{one}")),
            rng.choice((f"Create a {one}.", f"Add a {one}.", f"Save a new {one}.")),
            [(name, {**self.values.schema(kind), "description": f"The {name}"}, False) for name, kind in fields],
        )
        return Tool(definition, ask)

    def vary(self, text: str) -> str:
        """Return a request with another spelling of its beginning and end."""
        rng = self.rng
        if rng.random() < 0.25 and text[0].isupper() and text[1:2].islower():
            text = text[0].lower() + text[1:]
        elif rng.random() < 0.15:
            text = text[0].upper() + text[1:]
        if rng.random() < 0.15:
            text = text.rstrip("?.! ") or text
        if rng.random() < 0.08 and text[0].islower():
            text = rng.choice(OPENERS) + text
        if rng.random() < 0.05:
            text = text.rstrip(".! ") + rng.choice((" please", ", thanks", " asap", " :)"))
        return text


def _fill(template: str, values: dict[str, Value], maker: ValueMaker, language: str) -> str:
    def replace(match: Any) -> str:
        form, slot = match.groups()
        value = values[slot]
        return maker.spell_ordinal(value.json, language) if form == "ordinal" else value.spoken

    return SLOT.sub(replace, template)


def _fill_text(template: str, known: dict[str, str]) -> str:
    return SLOT.sub(lambda match: known.get(match.group(2), match.group(0)), template)


if __name__ == "__main__":
    generator = Generator(1)
    for _ in range(40):
        example = generator.make() if generator.rng.random() < 0.9 else generator.make_chain()
        print([tool.name for tool in example.tools])
        for turn in example.turns:
            print("  ", turn.role, ":", turn.text)
        print("   =>", example.reply)
