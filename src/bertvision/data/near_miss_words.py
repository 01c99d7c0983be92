# ruff: noqa: SIM905 (words are read more easily as text)
"""The words that the rules of near misses go by: lists to read and to add to, nothing that computes."""

# A word and what says the opposite in the same place of a question: the same part of speech and the same form.
ANTONYMS_OF = """
first/last largest/smallest biggest/smallest highest/lowest tallest/shortest longest/shortest oldest/youngest
oldest/newest earliest/latest greatest/least heaviest/lightest fastest/slowest strongest/weakest richest/poorest
best/worst closest/farthest nearest/farthest widest/narrowest deepest/shallowest hottest/coldest warmest/coldest
wettest/driest easiest/hardest busiest/quietest cheapest/costliest most/least brightest/dimmest
larger/smaller bigger/smaller higher/lower taller/shorter longer/shorter older/younger earlier/later greater/lesser
heavier/lighter faster/slower stronger/weaker richer/poorer better/worse warmer/colder hotter/colder easier/harder
wider/narrower deeper/shallower more/less
large/small big/small high/low long/short early/late old/young ancient/modern
fast/slow strong/weak rich/poor good/bad warm/cold hot/cold easy/difficult wide/narrow deep/shallow hard/soft
wet/dry common/rare famous/obscure important/unimportant successful/unsuccessful
public/private major/minor positive/negative legal/illegal upper/lower inner/outer internal/external
domestic/foreign primary/secondary former/current permanent/temporary maximum/minimum direct/indirect
formal/informal official/unofficial active/inactive visible/invisible necessary/unnecessary
same/different likely/unlikely able/unable mandatory/optional voluntary/compulsory
natural/artificial rural/urban senior/junior urban/rural democratic/undemocratic religious/secular
north/south northern/southern northeast/southwest northwest/southeast east/west eastern/western
northernmost/southernmost easternmost/westernmost above/below inside/outside before/after top/bottom
begin/end began/ended begins/ends beginning/end start/stop started/stopped starts/stops opened/closed
increase/decrease increased/decreased increases/decreases increasing/decreasing rise/fall rose/fell
raise/lower raised/lowered gain/lose gained/lost win/lose won/lost wins/loses winning/losing winner/loser
winners/losers support/oppose supported/opposed supports/opposes supporter/opponent supporters/opponents
supporting/opposing accept/reject accepted/rejected accepts/rejects include/exclude included/excluded
includes/excludes allow/forbid allowed/forbidden allows/forbids permit/prohibit permitted/prohibited
built/demolished build/demolish created/destroyed create/destroy creates/destroys founded/dissolved
established/abolished establish/abolish introduced/withdrawn appointed/dismissed hired/fired
import/export imports/exports imported/exported arrive/depart arrived/departed
arrives/departs enter/leave entered/exited attacked/defended
attacking/defending succeed/fail succeeded/failed
praised/criticized criticized/praised praise/criticize
encourage/discourage encouraged/discouraged approve/reject approved/rejected approval/rejection
protect/endanger protects/endangers protected/endangered improve/worsen improved/worsened improves/worsens
strengthen/weaken strengthened/weakened expand/shrink expanded/shrank promote/demote promoted/demoted
advantage/disadvantage advantages/disadvantages benefit/drawback benefits/drawbacks cause/prevent causes/prevents
caused/prevented causing/preventing ally/enemy allies/enemies friend/enemy friends/enemies majority/minority
birth/death strength/weakness strengths/weaknesses summer/winter spring/autumn
father/mother son/daughter sons/daughters brother/sister brothers/sisters husband/wife
uncle/aunt grandfather/grandmother male/female males/females men/women man/woman boy/girl boys/girls
actor/actress remember/forget remembered/forgotten connected/disconnected connect/disconnect
locked/unlocked combined/separated united/divided attached/detached discovered/overlooked
often/rarely frequently/rarely usually/rarely commonly/rarely typically/rarely mostly/hardly
widely/narrowly quickly/slowly rapidly/slowly directly/indirectly
publicly/privately officially/unofficially successfully/unsuccessfully voluntarily/involuntarily
"""

# Where a word of the list means something else, by the word before it and the word after it.
NOT_AFTER = {
    "end": "the",
    "most": "at how",
    "more": "any no how once",
    "last": "at the",
    "first": "at",
    "least": "at",
    "best": "at",
    "long": "how so as no",
    "longer": "no any",
    "late": "of",
    "early": "as",
    "old": "year years how",
    "good": "as",
    "same": "at",
}
NOT_BEFORE = {
    "most": "of",
    "more": "than of",
    "best": "known",
    "start": "up ups",
    "last": "name names",
    "first": "name names person lady",
    "early": "as",
    "major": "league in",
    "old": "testament",
    "high": "school schools court",
    "hard": "drive disk",
    "large": "scale",
    "long": "as ago",
    "good": "for at",
    "east": "coast",
    "west": "coast",
    "public": "school schools",
}

TITLES = frozenset(
    "mr mrs ms miss dr sir lord lady king queen prince princess pope saint president senator judge justice general "
    "colonel captain professor bishop cardinal emperor governor mayor chairman minister".split()
)
# What the last word of a name, or the one before its "of", says of its kind.
KINDS_BY_WORD = {
    word: kind
    for kind, words in {
        "school": "university college school institute academy seminary",
        "water": "river lake sea ocean bay gulf strait canal",
        "land": "mountain mountains island islands valley desert peninsula hills county province district",
        "event": "war wars battle revolution rebellion siege treaty crisis olympics bowl cup",
        "company": "company corporation inc corp co bank group ltd records motors airlines",
        "building": "church cathedral temple museum palace castle tower bridge stadium library hospital theater",
        "law": "act law constitution amendment bill code declaration",
        "group": "party army navy league union association committee council commission court congress senate",
        "state": "empire kingdom dynasty republic",
        "street": "street avenue road boulevard square park",
    }.items()
    for word in words.split()
}
DEMONYMS = frozenset(
    "american british english french german italian spanish portuguese dutch swedish danish norwegian finnish polish "
    "russian soviet ukrainian greek turkish roman egyptian arab israeli iranian persian iraqi indian pakistani chinese "
    "japanese korean vietnamese thai indonesian australian canadian mexican brazilian argentine chilean cuban african "
    "european asian irish scottish welsh hungarian austrian swiss belgian czech armenian jewish muslim christian "
    "catholic protestant orthodox buddhist hindu".split()
)
MONTHS = "january february march april may june july august september october november december".split()
WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
CARDINALS = (
    "two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty seventy eighty "
    "ninety"
).split()

QUESTION_WORDS = frozenset("what who whom whose when where which why how".split())
AUXILIARIES = frozenset(
    "is are was were do does did has have had can could will would should must might may be been being am".split()
)
# Words that say nothing of what a sentence is about.
FUNCTION_WORDS = (
    QUESTION_WORDS
    | AUXILIARIES
    | frozenset(
        "a an the of in on at by for from to with as into onto about between during and or but not n't no nor than "
        "then that this these those there it its he his him she her they their them we our us you your i my me s t "
        "also name type kind many much some any other such one according after before while although however since "
        "when if once both all each every".split()
    )
)
# Before a number they leave room for others: what is true before 1990 may be true before 1986.
OPEN_BEFORE = frozenset(
    "before after since until till by over under than least most between about around approximately nearly almost from "
    "to and or through past up -".split()
)
# Before a number in words they count what is asked for: "what two rivers" is answered by one of three, too.
COUNTING_BEFORE = frozenset("no what which name are were is was the these those of their his her its list".split())
BEFORE_ORDINAL = frozenset("the a his her its their s 's".split())
NEGATIONS = frozenset("not never no none neither nor cannot without except nobody nothing n't".split())
PREPOSITIONS = frozenset("of in on at by for from to with as into about during against under over like".split())
BEFORE_PLACE = frozenset("in near across throughout".split())
AFTER_PERSON = frozenset("said says wrote writes argued believed thought died married who whose told stated".split())
