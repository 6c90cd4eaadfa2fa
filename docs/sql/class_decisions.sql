-- Which classes were learned, merged, bounded or flagged, and why?
-- Use it when a class appeared, vanished or has two kinds of requests in it. One row per class with
-- its newest verdict, and one per rule in force that makes a class from path templates.
--   verdict, reason   of the job `classify`; flagged: the class has two clear modes, see split_by
--   effect, p_value   how different the class is from its nearest class, and how certain that is
--   split_by          the attribute that separates the modes best, and the share of them that it
--                     explains
--   rule, applies_to  kind of the rule that makes the class (pinned by hand, learned, merged,
--                     bounded), and the templates that it applies to
--   made_by, since    author of the rule, and when it took effect
-- A rule for any method makes one class per method with a verdict. Before there is a verdict, the
-- method is `*`.
WITH
    ['pinned', 'merged', 'learned', 'bounded', 'retired', 'unpinned'] AS kinds,
    findings AS
    (
        SELECT * FROM class_findings ORDER BY found_at DESC LIMIT 1 BY service, class
    ),
    in_force AS
    (
        SELECT *, kind IN ('pinned', 'unpinned') AS operators FROM class_rules FINAL
        WHERE effective_from <= now64(3)
        ORDER BY effective_from DESC, indexOf(kinds, kind) DESC, becomes DESC
        LIMIT 1 BY service, method, template, operators
    ),
    judged AS
    (
        SELECT service, splitByChar(' ', class)[3] AS becomes, groupUniqArray(splitByChar(' ', class)[2]) AS methods
        FROM findings GROUP BY service, becomes
    ),
    rules AS
    (
        SELECT service,
               arrayJoin(multiIf(method != '', [toString(method)], empty(methods), ['*'], methods)) AS of_method,
               concat(service, ' ', of_method, ' ', becomes) AS class, argMax(kind, effective_from) AS rule,
               groupUniqArray(template) AS applies_to, argMax(author, effective_from) AS made_by,
               min(effective_from) AS since, argMax(reason, effective_from) AS why
        FROM in_force LEFT JOIN judged USING (service, becomes)
        WHERE kind NOT IN ('retired', 'unpinned')
        GROUP BY service, of_method, class
    )
SELECT service, class, f.verdict AS verdict, if(f.reason != '', f.reason, r.why) AS reason, f.requests AS requests,
       round(f.effect, 3) AS effect, f.p_value AS p_value, f.modes AS modes,
       if(f.split_attribute = '', '', concat(f.split_attribute, ' at ', f.split_value, ' explains ', toString(round(100 * f.split_explained)), ' %')) AS split_by,
       r.rule AS rule, arraySort(r.applies_to) AS applies_to, r.made_by AS made_by, r.since AS since
FROM findings AS f FULL OUTER JOIN rules AS r USING (service, class)
ORDER BY service, class
