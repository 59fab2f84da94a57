import{a}from"./chunk-AADZSX3T.js";export{a as messages};
